"""Running test code: its ``unittest`` classes, and evidence that it ran to its end."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Iterable
from typing import Any

from whetstone.judge.harness.compiling import TestCodeError

Explain = Callable[[BaseException], list[str]]
"""What an exception that a test raised means: status and reason."""


class _Result(unittest.TestResult):
    """Collects the first failure, explained."""

    def __init__(self, explain: Explain) -> None:
        super().__init__()
        self._explain = explain
        self.first: list[str] | None = None

    def _note(self, error: Any) -> None:
        if self.first is None:
            self.first = self._explain(error[1])

    def addError(self, test: Any, err: Any) -> None:
        self._note(err)
        super().addError(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(err)
        super().addFailure(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._note(err)
        super().addSubTest(test, subtest, err)


def _refuse_unawaited(loader: unittest.TestLoader, case: type[unittest.TestCase]) -> None:
    """Refuse coroutine and generator methods of a class that would call them without running them."""
    awaits = issubclass(case, unittest.IsolatedAsyncioTestCase)
    for name in loader.getTestCaseNames(case):
        method = getattr(case, name)
        lazy = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
        if lazy or (inspect.iscoroutinefunction(method) and not awaits):
            raise TestCodeError(f"`{name}` would be called and never run, so its assertions never ran")


def run_unittests(classes: Iterable[type[unittest.TestCase]], explain: Explain) -> list[str]:
    """Run the tests of ``classes`` until the first failure: status and reason. Raises TestCodeError."""
    own = list(classes)
    loader = unittest.TestLoader()
    for case in own:
        _refuse_unawaited(loader, case)
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in own)
    wanted = suite.countTestCases()
    if not wanted:
        raise TestCodeError("the test code holds no unit test")
    result = _Result(explain)
    result.failfast = True
    suite.run(result)
    if result.first is not None:
        return result.first
    # Evidence, not the absence of failures: every test ran, and one at least was not skipped.
    if not result.wasSuccessful() or result.testsRun != wanted:
        return ["unusable", "a unit test did not run to its end"]
    if len(result.skipped) >= wanted:
        if all(_is_skipped(case) for case in own):
            raise TestCodeError("every unit test is skipped")
        return ["unusable", "every unit test skipped itself"]  # which a program can bring about
    return ["passed", ""]


def _is_skipped(case: type[unittest.TestCase]) -> bool:
    """Whether decorators skip the whole class, or each of its tests, before anything of it runs."""
    names = unittest.TestLoader().getTestCaseNames(case)
    owners = [case, *(getattr(case, name) for name in names)]
    marks = [bool(getattr(owner, "__unittest_skip__", False)) for owner in owners]
    return marks[0] or all(marks[1:])


def test_classes(values: Iterable[object], module: str) -> list[type[unittest.TestCase]]:
    """The test classes among ``values`` that ``module`` defines itself."""
    cases = [v for v in values if isinstance(v, type) and issubclass(v, unittest.TestCase)]
    return [case for case in cases if case.__module__ == module]


def ran_to_its_end(returned: object) -> None:
    """Refuse a test that only made a coroutine or generator: none of its assertions were run."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TestCodeError(f"the test code gave a {type(returned).__name__}, so its assertions never ran")


def failed_line(error: BaseException, code: str) -> str:
    """The line of the test code where an assertion failed."""
    number, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<test>":
            number = frame.tb_lineno
        frame = frame.tb_next
    lines = code.splitlines()
    return lines[number - 1].strip()[:300] if 0 < number <= len(lines) else "assertion failed"
