"""``pytest -p tests.fast``: run only the tests that need no process, no connection and no model.

The plug-in deselects every test that needs processes. Property tests try few examples. It skips every module
that imports transformers, and modules that import torch or another package of the extra `train` where it is
not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from hypothesis import settings

from tests.process_mark import needs_processes

FEWEST_PASSED = 1500
"""Fewer passed tests are an error: a common import or fixture has then disabled most of the suite."""

_MODEL_PACKAGES = {"transformers"}
_OPTIONAL_PACKAGES = {"torch", "safetensors", "gguf", "peft"}


class _State:
    in_test = False
    collecting = False


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


sys.meta_path.insert(0, _ModelFinder)
sys.meta_path.append(_MissingPackageFinder)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if needs_processes(item)]
    fast = [item for item in items if not needs_processes(item)]
    config.hook.pytest_deselected(items=slow)
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
