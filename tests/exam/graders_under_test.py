"""Graders with known defects, which the exam must find. They are examined as ``module:function``."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from whetstone.core.problem import AssertTests, CallTests, Problem, Program, StdinTests
from whetstone_exam.graders.forms import call_values, no_literal_call_form


class _OnlyPython:
    """A grader with the attributes that an exam reads."""

    version = "1.0"

    def unsupported(self, problem: Problem, program: Program) -> str:
        if program.language != "python":
            return "only Python"
        if problem.checker is not None or not (isinstance(problem.tests, StdinTests) or _script(problem)):
            return "only asserts, and standard input and output"
        return ""


def _script(problem: Problem) -> str:
    """The statements of the tests; empty if they are no asserts."""
    tests = problem.tests
    return "\n".join([tests.setup, *(tests.asserts or [])]) if isinstance(tests, AssertTests) else ""


class _InProcess(_OnlyPython):
    """Executes program and tests in its own interpreter, as many trainers do. Invariant 2 is broken."""

    def __call__(self, problem: Problem, program: Program) -> bool:
        tests = problem.tests
        if isinstance(tests, AssertTests):
            names: dict[str, object] = {"__name__": "__main__"}
            try:
                exec(f"{program.source}\n{_script(problem)}", names)
            except BaseException:
                return False
            return True
        assert isinstance(tests, StdinTests)
        return all(self._prints(program, case.input, case.output) for case in tests.cases)

    def _prints(self, program: Program, given: str, wanted: str) -> bool:
        out = io.StringIO()
        sys.stdin = io.StringIO(given)
        try:
            with contextlib.redirect_stdout(out):
                exec(program.source, {"__name__": "__main__"})
        except BaseException:
            return False
        return out.getvalue().split() == wanted.split()


class _ExitStatus(_OnlyPython):
    """Accepts a script of program and asserts that exits with status 0. Invariant 1 is broken."""

    def unsupported(self, problem: Problem, program: Program) -> str:
        if not _script(problem):
            return "only asserts"
        return super().unsupported(problem, program)

    timeout_s: float | None = 5

    def __call__(self, problem: Problem, program: Program) -> bool:
        done = self._run(f"{program.source}\n{_script(problem)}")
        return done is not None and done.returncode == 0

    def _run(self, script: str) -> subprocess.CompletedProcess[bytes] | None:
        try:
            return subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            return None


class _FirstCase(_InProcess):
    """Runs only the first test. Invariant 1 is broken."""

    def __call__(self, problem: Problem, program: Program) -> bool:
        tests = problem.tests
        first = (
            replace(tests, asserts=tests.asserts[:1])
            if isinstance(tests, AssertTests) and tests.asserts
            else tests
        )
        first = replace(first, cases=first.cases[:1]) if isinstance(first, StdinTests) else first
        return super().__call__(replace(problem, tests=first), program)


in_process = _InProcess()
first_case = _FirstCase()
exit_status = _ExitStatus()


def rejects_all(problem: Problem, program: Program) -> float:
    """Turns every failure of its own into a reward of 0."""
    return 0.0


def guesses(problem: Problem, program: Program) -> bool:
    """Depends on chance, as one does that depends on the machine's load. Invariant 4 is broken."""
    return random.SystemRandom().random() < 0.5


def dies(problem: Problem, program: Program) -> bool:
    os._exit(0)


def hangs(problem: Problem, program: Program) -> bool:
    time.sleep(600)
    return True


def raises(problem: Problem, program: Program) -> bool:
    raise RuntimeError("no sandbox is left")


def can_write(problem: Problem, program: Program) -> bool:
    """Whether a file of the examiner, whose path is the program, can be changed."""
    try:
        Path(program.source).write_text("changed", encoding="utf-8")
    except OSError:
        return False
    return True


def can_write_temporary_files(problem: Problem, program: Program) -> bool:
    Path(os.environ["TMPDIR"], "mine").write_text("mine", encoding="utf-8")
    return True


def can_signal(problem: Problem, program: Program) -> bool:
    """Whether a process of the examiner, whose number is the program, can be seen."""
    return Path(f"/proc/{program.source}/stat").exists() and "pytest" in Path(
        f"/proc/{program.source}/cmdline"
    ).read_text(encoding="utf-8", errors="replace")


class _BestOfEight(_InProcess):
    """Gives a rejected program seven further attempts. Invariant 12 is broken."""

    def __call__(self, problem: Problem, program: Program) -> bool:
        return any(super(_BestOfEight, self).__call__(problem, program) for _ in range(8))


class _ReadsOutput(_ExitStatus):
    """Looks for the word of its test script in what was printed. Invariant 13 is broken."""

    def __call__(self, problem: Problem, program: Program) -> bool:
        done = self._run(f"{program.source}\n{_script(problem)}\nprint('All tests passed')")
        return done is not None and b"All tests passed" in done.stdout


class _ComparesSlowly(_OnlyPython):
    """Compares lists in a time that grows with the square of their length. Invariant 16 is broken."""

    def unsupported(self, problem: Problem, program: Program) -> str:
        return no_literal_call_form(problem, program)

    def __call__(self, problem: Problem, program: Program) -> bool:
        assert isinstance(problem.tests, CallTests)
        assert problem.tests.function
        names: dict[str, Any] = {}
        exec(program.source, names)
        function = names[problem.tests.function]
        return all(
            _distinct(function(*given)) == _distinct(wanted)
            for given, wanted in zip(*call_values(problem), strict=True)
        )


def _distinct(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    return [item for number, item in enumerate(items) if item not in items[:number]]


class _NoLimits(_ExitStatus):
    """Waits for any program. Invariant 15 is broken."""

    timeout_s = None


best_of_eight = _BestOfEight()
reads_output = _ReadsOutput()
compares_slowly = _ComparesSlowly()
no_limits = _NoLimits()
