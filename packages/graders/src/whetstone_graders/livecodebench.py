"""LiveCodeBench's grader (28fef95) in our judge: which part of a reply it takes, and how it runs that.

Printed lines are compared by ``grader:lcb``; of functions, all calls go to one object, and the first
value that is not right ends it. Six seconds for each test: of CPU time here, so that a busy machine
changes nothing, where the grader's alarm takes the clock's.
"""

from __future__ import annotations

from whetstone.core.literal import write_literal
from whetstone.core.problem import CallCase, CallTests, Compare, Limits, Problem, StdinTests
from whetstone_graders.form import OfficialForm

SECONDS = 6.0
MEMORY_MB = 4096.0
"""The grader sets no limit; its comment says 4 GB."""
_MOST_OUTPUT_MB = 64.0


def code_in(reply: str) -> str:
    """Return the text between the last two lines with a fence; blank if there are fewer than two."""
    lines = reply.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) >= 2 else ""


def official_form(problem: Problem) -> OfficialForm | None:
    """The form of a problem with standard input or a function; None for any other kind."""
    tests = problem.tests
    if isinstance(tests, StdinTests) and problem.checker is None:
        return _form(problem, tests, SECONDS, "livecodebench_stdin({code})")
    if isinstance(tests, CallTests) and tests.function is not None and not tests.literals:
        # Together they have the time after which the grader ends its process.
        seconds = (SECONDS + 1) * len(tests.cases) + 5
        call = f"def Calls(): return LiveCodeBenchCalls({{code}}, {tests.function!r}, {SECONDS!r})"
        return _form(problem, _in_one_process(tests.cases), seconds, call)
    return None


def _form(problem: Problem, tests: StdinTests | CallTests, cpu_s: float, call: str) -> OfficialForm:
    official = Problem(
        id=problem.id,
        statement=problem.statement,
        tests=tests,
        compare=Compare("grader:lcb"),
        limits=Limits(cpu_s, MEMORY_MB, _MOST_OUTPUT_MB),
        source=problem.source,
    )
    return OfficialForm(official, call)


def _in_one_process(cases: list[CallCase]) -> CallTests:
    """Return the calls as operations on one object, since the grader keeps state between calls."""
    one = CallCase(
        operations=["Calls", *["call"] * len(cases)],
        args=[[], *([write_literal(value) for value in case.args] for case in cases)],
        expected=[None, *(write_literal(case.expected) for case in cases)],
    )
    return CallTests([one], class_="Calls", literals=True)
