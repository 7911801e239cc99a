"""``pytest -p tests.fast``: the tests that start no process, open no connection and load no model.

A test is left out if it is marked ``process`` or uses a fixture that starts one. A test that is not left out
and starts a process, or binds or connects a socket, fails. What imports transformers is skipped, and what
needs torch is skipped where torch is not installed.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
from collections.abc import Generator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

FEWEST_PASSED = 1500
"""Fewer mean that something in common use starts a process or imports transformers."""

_FIXTURES = {"judge", "sandbox", "tier", "server"}
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
_CONNECTS = {"socket.bind", "socket.connect"}
_MODELS = {"transformers"}
_OPTIONAL = {"torch"}


class _State:
    in_test = False
    collecting = False


def _skip(why: str) -> None:
    pytest.skip(why, allow_module_level=True)


def _fail(what: str) -> None:
    pytest.fail(f"a fast test does no {what}: mark it with pytest.mark.process")


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _State.in_test and event in _STARTS | _CONNECTS and os.getpid() == _OWN_PID:
        _fail(event)


class _NoModels:
    """A finder that comes first, and refuses what a fast test does not import."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _MODELS and (_State.in_test or _State.collecting):
            _skip(f"it imports {name}")
        return None


class _NoOptional:
    """A finder that comes last: a package that is optional is not installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _OPTIONAL and (_State.in_test or _State.collecting):
            _skip(f"{name} is not installed")
        return None


def _spawn_refused(*args: object, **options: object) -> int:
    """``multiprocessing`` spawns by a call that has no audit event."""
    if _State.in_test:
        _fail("multiprocessing")
    return _spawn(*args, **options)


_OWN_PID = os.getpid()
_spawn: Any = multiprocessing.util.spawnv_passfds
multiprocessing.util.spawnv_passfds = _spawn_refused
sys.addaudithook(_watch)
sys.meta_path.insert(0, _NoModels)
sys.meta_path.append(_NoOptional)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast: list[pytest.Item] = []
    for item in items:
        used = set(item.fixturenames) if isinstance(item, pytest.Function) else set[str]()
        if item.get_closest_marker("process") is None and not used & _FIXTURES:
            fast.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(fast)])
    items[:] = fast


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    _State.in_test = True
    try:
        return (yield)
    finally:
        _State.in_test = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    _State.collecting = True
    try:
        return (yield)
    finally:
        _State.collecting = False


class _Passed:
    """Counts in the process that reports: with xdist, the one that runs no test."""

    def __init__(self) -> None:
        self.count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call" and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.count < FEWEST_PASSED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\nonly {self.count} fast tests ran, of at least {FEWEST_PASSED}; see tests/fast.py")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Passed())
