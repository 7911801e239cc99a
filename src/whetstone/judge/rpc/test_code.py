"""Run ``unittest`` classes of test code, and check that test code ran completely."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable
from typing import Any

from whetstone.judge.rpc.compiling import TestCodeError

Explain = Callable[[BaseException], list[str]]
"""Returns status and reason for an exception that a test raised."""


class _Result(unittest.TestResult):
    """Collects the first failure as status and reason."""

    def __init__(self, explain: Explain) -> None:
        super().__init__()
        self._explain = explain
        self.first_outcome: list[str] | None = None

    def _note(self, error: Any) -> None:
        if self.first_outcome is None:
            self.first_outcome = self._explain(error[1])

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


def run_tests(unit: dict[str, Any], scope: dict[str, Any], module: str, explain: Explain) -> list[str]:
    """Run the rest of a unit after its code was executed in ``scope``: nothing for plain asserts.

    ``module``: the ``__module__`` of the test's own classes. Return status and reason. Raises TestCodeError.
    """
    if unit["kind"] == "check":
        if "check" not in scope:
            raise TestCodeError("the test code defines no `check`")
        returned = scope["check"](scope[unit["entry_point"]])
        if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            kind = type(returned).__name__
            raise TestCodeError(f"the test code returned a {kind}, so its assertions never ran")
    if unit["kind"] == "unittest":
        cases = [v for v in scope.values() if isinstance(v, type) and issubclass(v, unittest.TestCase)]
        return _run_unittests([case for case in cases if case.__module__ == module], explain)
    return ["passed", ""]


def _run_unittests(case_classes: list[type[unittest.TestCase]], explain: Explain) -> list[str]:
    """Run the tests of ``case_classes`` until the first failure.

    Return status and reason. Raises TestCodeError.
    """
    loader = unittest.TestLoader()
    for case in case_classes:
        is_async_case = issubclass(case, unittest.IsolatedAsyncioTestCase)
        for name in loader.getTestCaseNames(case):
            method = getattr(case, name)
            lazy = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
            if lazy or (inspect.iscoroutinefunction(method) and not is_async_case):
                raise TestCodeError(f"calling `{name}` does not run it, so its assertions never ran")
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in case_classes)
    expected = suite.countTestCases()
    if not expected:
        raise TestCodeError("the test code contains no unit test")
    result = _Result(explain)
    result.failfast = True
    suite.run(result)
    if result.first_outcome is not None:
        return result.first_outcome
    # No failure is not enough: every test must have run, and at least one must not be skipped.
    if not result.wasSuccessful() or result.testsRun != expected:
        return ["unusable", "a unit test did not run to its end"]
    if len(result.skipped) >= expected:
        if all(_is_skipped(case) for case in case_classes):
            raise TestCodeError("every unit test is skipped")
        # The program may have caused this, so the test code is not at fault.
        return ["unusable", "every unit test skipped itself"]
    return ["passed", ""]


def _is_skipped(case: type[unittest.TestCase]) -> bool:
    """Return whether decorators skip the whole class or each of its tests, before any code of it runs."""
    names = unittest.TestLoader().getTestCaseNames(case)
    owners = [case, *(getattr(case, name) for name in names)]
    marks = [bool(getattr(owner, "__unittest_skip__", False)) for owner in owners]
    return marks[0] or all(marks[1:])


def failed_line(error: BaseException, code: str) -> str:
    """Return the line of the test code in which an assertion failed."""
    number, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<test>":
            number = frame.tb_lineno
        frame = frame.tb_next
    lines = code.splitlines()
    return lines[number - 1].strip()[:300] if 0 < number <= len(lines) else "assertion failed"
