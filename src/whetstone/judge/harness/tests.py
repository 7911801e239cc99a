"""In the testing process: run one unit of test code against a program in another process.

The outcome goes out through this process's own result descriptor, which the program cannot reach:
``[status, reason]`` in the ``values`` codec, written only after the unit ran to its end and the
program answered once more. Statuses: ``passed``; ``failed`` (the test's assertion); ``unusable`` (what
the program gave made the test code raise); ``raised`` (an exception of the program's reached the test);
``missing`` (a function is not defined); ``gone`` (the link broke); ``broken`` (the test code itself is).
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import unittest
from types import ModuleType
from typing import Any, cast

from whetstone.judge.harness.link import LinkLost
from whetstone.judge.harness.loading import describe, write_all
from whetstone.judge.harness.proxy import Peer
from whetstone.judge.values import decode, encode

_MODULE = "__test__"


class TestCodeError(Exception):
    """The test code does not compile, needs a module that is not here, or holds no test."""


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the unit and write its outcome."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    peer = Peer(link_fd)
    try:
        outcome = _outcome(peer, decode(payload))
    except TestCodeError as error:
        outcome = ["broken", str(error)[:300]]
    except LinkLost as error:
        outcome = ["gone", str(error)]
    except BaseException as error:
        # Outside the unit itself only an odd answer of the program's can raise.
        outcome = ["unusable", describe(error)]
    write_all(result_fd, encode(outcome))
    os._exit(0)


def _outcome(peer: Peer, unit: dict[str, Any]) -> list[str]:
    codes = [_compiled(unit["setup"], "<setup>"), _compiled(unit["code"], "<test>")]
    greeting = peer.link.receive_greeting()
    if greeting[0] != "loaded":
        return ["raised", str(greeting[-1])]
    scope = _scope(peer, unit)
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        for code in codes:
            exec(code, scope)
        outcome = _run(peer, unit, scope)
    except (LinkLost, TestCodeError):
        raise
    except BaseException as error:
        outcome = _explain(peer, error, unit["code"])
    nonce = os.urandom(8)
    if peer.ask("ping", nonce) != nonce:
        raise LinkLost("a wrong answer to a ping")
    if peer.caught is not None:
        return ["failed", f"the program caught a failed assertion: {peer.caught}"[:300]]
    return outcome


def _run(peer: Peer, unit: dict[str, Any], scope: dict[str, Any]) -> list[str]:
    """What is left to do once the code was executed: nothing for plain asserts."""
    if unit["kind"] == "check":
        if "check" not in scope:
            raise TestCodeError("the test code defines no `check`")
        _ran_to_its_end(scope["check"](scope[unit["entry_point"]]))
    if unit["kind"] == "unittest":
        return _run_unittest(peer, scope, unit["code"])
    return ["passed", ""]


def _ran_to_its_end(returned: object) -> None:
    """Refuse a test that only made a coroutine or generator: none of its assertions were run."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TestCodeError(f"the test code gave a {type(returned).__name__}, so its assertions never ran")


def _compiled(source: str, name: str) -> Any:
    try:
        return compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TestCodeError(f"the test code does not compile: {error}") from None


def _scope(peer: Peer, unit: dict[str, Any]) -> dict[str, Any]:
    """The test's globals: stand-ins for the program's names, and modules imported here."""
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    scope = module.__dict__
    scope["__builtins__"] = __builtins__
    scope.update(cast("dict[str, Any]", _names(peer, unit["names"])))
    for name, (source, attribute) in unit["imports"].items():
        try:
            imported = importlib.import_module(source)
            scope[name] = getattr(imported, attribute) if attribute else imported
        except (ImportError, AttributeError) as error:
            raise TestCodeError(f"`{name}` cannot be imported for the test: {error}") from None
    if unit["entry_point"] in scope and "candidate" in unit["free"]:
        scope["candidate"] = scope[unit["entry_point"]]
    return scope


def _names(peer: Peer, wanted: list[str]) -> dict[Any, Any]:
    # A tuple: a list in a request would be brought to what the program says it made of it.
    found = peer.ask("names", tuple(wanted))
    if type(found) is not dict:
        raise peer.link.lose("malformed names")
    # Only what was asked for: a program must not put names of its choice into the test's globals.
    answered = cast("dict[Any, Any]", found)
    return {name: answered[name] for name in wanted if name in answered}


def _explain(peer: Peer, error: BaseException, code: str) -> list[str]:
    if any(error is raised for raised in peer.raised):
        return ["raised", describe(error)]
    if isinstance(error, AssertionError):
        return ["failed", str(error)[:300] or _line(error, code)]
    if isinstance(error, NameError):
        return ["missing", describe(error)]
    if isinstance(error, ImportError):
        raise TestCodeError(describe(error))
    return ["unusable", describe(error)]


def _line(error: BaseException, code: str) -> str:
    """The line of the test code where an assertion failed."""
    number, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<test>":
            number = frame.tb_lineno
        frame = frame.tb_next
    lines = code.splitlines()
    return lines[number - 1].strip()[:300] if 0 < number <= len(lines) else "assertion failed"


class _Result(unittest.TestResult):
    """Collects the first failure, explained."""

    def __init__(self, peer: Peer, code: str) -> None:
        super().__init__()
        self._peer, self._code = peer, code
        self.first: list[str] | None = None

    def _note(self, error: Any) -> None:
        if self.first is None:
            self.first = _explain(self._peer, error[1], self._code)

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


def _run_unittest(peer: Peer, scope: dict[str, Any], code: str) -> list[str]:
    loader = unittest.TestLoader()
    cases = [v for v in scope.values() if isinstance(v, type) and issubclass(v, unittest.TestCase)]
    own = [case for case in cases if case.__module__ == _MODULE]
    for case in own:
        _refuse_unawaited(loader, case)
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in own)
    wanted = suite.countTestCases()
    if not wanted:
        raise TestCodeError("the test code holds no unit test")
    result = _Result(peer, code)
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
