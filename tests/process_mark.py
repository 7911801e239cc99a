"""Tests that start a process or open a connection have the mark ``process``.

`make test-fast` runs only the others. They fail there if they do so, and cause a warning in other runs. A
test with a fixture that starts a process needs no mark, and neither does one that `make test-fast` leaves out
for another reason.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import warnings
from collections.abc import Generator
from typing import Any

import pytest

_LEFT_OUT = ("process", "cost", "extended", "slow", "integration")
_PROCESS_FIXTURES = {"judge", "sandbox", "tier", "server"}
_EVENTS = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "os.exec",
    "socket.bind",
    "socket.connect",
}


class _State:
    watched = False
    """Whether a test without the mark is in progress."""
    event: str | None = None
    """Its first event that needs the mark."""


def needs_processes(item: pytest.Item) -> bool:
    """Return whether `make test-fast` leaves a test out, which then may start processes."""
    fixtures = set(item.fixturenames) if isinstance(item, pytest.Function) else set[str]()
    marked = any(item.get_closest_marker(name) is not None for name in _LEFT_OUT)
    return marked or bool(fixtures & _PROCESS_FIXTURES)


def _record(event: str) -> None:
    """Record the event instead of raising: an exception in a thread could make its test wait for ever."""
    if _State.watched and os.getpid() == _OWN_PID:
        _State.event = _State.event or event


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        _record(event)


def _spawn_recorded(*arguments: object, **options: object) -> int:
    """Record that multiprocessing spawns a process; that call raises no audit event."""
    # From Python 3.14 on, any lock of multiprocessing starts the tracker, once for all tests.
    if "resource_tracker" not in repr(arguments):
        _record("multiprocessing")
    return _spawn(*arguments, **options)


_OWN_PID = os.getpid()
_spawn: Any = multiprocessing.util.spawnv_passfds
multiprocessing.util.spawnv_passfds = _spawn_recorded
sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to watch a test without the mark."""
    _State.watched, _State.event = not needs_processes(item), None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that did what needs the mark, in its fixtures or itself; warn outside of `make test-fast`.

    In other runs the test may have been the first to need what several tests share, such as a fixture of its
    module, or the compilers of this machine.
    """
    result = yield
    if _State.event is not None:
        message = f"this test caused {_State.event}; mark it with pytest.mark.process"
        if item.config.pluginmanager.has_plugin("tests.fast"):
            pytest.fail(message, pytrace=False)
        warnings.warn(f"{item.nodeid}: {message}", stacklevel=1)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """End the watch: a fixture of the session may end its processes with any test."""
    _State.watched = False
    return (yield)
