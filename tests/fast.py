"""``pytest -p tests.fast``: run only the tests that need no process, no connection and no model.

The plug-in deselects every test that has the mark ``process`` or ``cost``, or uses a fixture that starts a
process. Property tests try few examples. It skips every module that imports transformers, and modules that
import torch or another package of the extra `train` where it is not installed.
A selected test that starts a process, or binds or connects a socket, fails.
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
from hypothesis import settings

FEWEST_PASSED = 1500
"""Fewer passed tests are an error: a common import or fixture has then disabled most of the suite."""

_PROCESS_FIXTURES = {"judge", "sandbox", "tier", "server"}
_FORBIDDEN_EVENTS = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "os.exec",
    "socket.bind",
    "socket.connect",
}
_MODEL_PACKAGES = {"transformers"}
_OPTIONAL_PACKAGES = {"torch", "safetensors", "gguf", "peft"}


class _State:
    in_test = False
    collecting = False
    forbidden: str | None = None
    """The first forbidden event of the current test."""


def _forbid(event: str) -> None:
    """Record the event instead of raising: an exception in a thread could make its test wait for ever."""
    if _State.in_test and os.getpid() == _OWN_PID:
        _State.forbidden = _State.forbidden or event


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN_EVENTS:
        _forbid(event)


def _fail_if_forbidden() -> None:
    event, _State.forbidden = _State.forbidden, None
    if event is not None:
        pytest.fail(f"this test caused {event}; mark it with pytest.mark.process", pytrace=False)


class _ModelFinder:
    """The first finder: it skips the test or module that imports a package that loads models."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _MODEL_PACKAGES and (_State.in_test or _State.collecting):
            pytest.skip(f"it imports {name}", allow_module_level=True)
        return None


class _MissingPackageFinder:
    """The last finder: it skips the test or module that imports an optional package that is missing."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _OPTIONAL_PACKAGES and (_State.in_test or _State.collecting):
            pytest.skip(f"{name} is not installed", allow_module_level=True)
        return None


def _spawn_recorded(*arguments: object, **options: object) -> int:
    """Record that multiprocessing spawns a process; that call raises no audit event."""
    _forbid("multiprocessing")
    return _spawn(*arguments, **options)


_OWN_PID = os.getpid()
_spawn: Any = multiprocessing.util.spawnv_passfds
multiprocessing.util.spawnv_passfds = _spawn_recorded
sys.addaudithook(_watch)
sys.meta_path.insert(0, _ModelFinder)
sys.meta_path.append(_MissingPackageFinder)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast: list[pytest.Item] = []
    slow: list[pytest.Item] = []
    for item in items:
        fixtures = set(item.fixturenames) if isinstance(item, pytest.Function) else set[str]()
        marked = any(item.get_closest_marker(name) is not None for name in ("process", "cost"))
        (slow if marked or fixtures & _PROCESS_FIXTURES else fast).append(item)
    config.hook.pytest_deselected(items=slow)
    items[:] = fast


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    _State.in_test = True
    result = yield
    _fail_if_forbidden()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    result = yield
    _fail_if_forbidden()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        _State.in_test = False
        _State.forbidden = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    _State.collecting = True
    try:
        return (yield)
    finally:
        _State.collecting = False


class _PassedCounter:
    """Counts the passed tests in the process that reports, which runs no test itself under xdist."""

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.passed < FEWEST_PASSED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(
                f"\nonly {self.passed} fast tests passed, at least {FEWEST_PASSED} should; see tests/fast.py"
            )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("fast")
    complete = not config.option.collectonly and config.args_source != config.ArgsSource.ARGS
    if complete and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_PassedCounter())
