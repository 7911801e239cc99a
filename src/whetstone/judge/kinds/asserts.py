"""Judging ``assert`` tests: test code in one process, the program in another, values between them.

Where a problem's own reference shows that a unit of its tests cannot work so, the unit is judged in one
interpreter instead, and marked: see ``shared_interpreter``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.kinds.names import test_names
from whetstone.judge.kinds.shared_interpreter import judge_shared, needs_one_interpreter
from whetstone.judge.languages.table import PYTHON, PYTHON_SCIENTIFIC
from whetstone.judge.outcome import (
    COMPILE_ERROR,
    case,
    crashed,
    judge_failure,
    limit_exceeded,
    outlasting,
    run_limits,
)
from whetstone.judge.values import WireError, decode, encode
from whetstone.problem import AssertTests, Problem
from whetstone.sandbox import Ended, RunLimits, RunResult, SandboxFault, supervise
from whetstone.verdict import CaseJudgement, Verdict

_FAILED_VERDICTS = {
    "failed": Verdict.WRONG_ANSWER,
    "unusable": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
    "gone": Verdict.RUNTIME_ERROR,
}
_UNDECIDED = frozenset({"", "broken"})
_STATUSES = frozenset({"passed", "broken", *_FAILED_VERDICTS})
# What a proxied program can bring about without being wrong.
_DOUBTFUL = frozenset({"unusable", "missing", *_UNDECIDED})
# The testing process holds what the program sends beside the test's own data.
_TEST_MEMORY_MB = 1024.0


def judge_assert(
    boxes: Boxes, problem: Problem, tests: AssertTests, number: int, source: str
) -> CaseJudgement:
    """Run unit ``number`` of the tests against ``source``. Raises SandboxFault.

    A unit is one of ``asserts``, or the whole of ``check`` or ``unittest``; it meets a fresh program.
    """
    try:
        unit = _unit(problem, tests, number)
    except (SyntaxError, ValueError) as error:
        return judge_failure(f"the test code does not compile: {error}")
    tested, program = _run_pair(boxes, problem, [unit], source)
    [(status, reason, strained)] = _outcomes(tested, 1)
    judged = _judgement(tested, program, status, reason)
    doubtful = status in _DOUBTFUL or (strained and status != "passed")
    if doubtful and _needs_one_interpreter(boxes, problem, unit, number):
        return judge_shared(boxes, problem, unit, source)
    if judged.verdict is Verdict.JUDGE_ERROR and _breaks_the_test(boxes, problem, unit, source):
        return case(program, Verdict.WRONG_ANSWER, f"made the test code fail: {judged.reason}")
    return judged


def _needs_one_interpreter(boxes: Boxes, problem: Problem, unit: dict[str, Any], number: int) -> bool:
    def proxied(source: str) -> bool:
        return _passes(_run_pair(boxes, problem, [unit], source)[0])

    def shared(source: str) -> bool:
        return judge_shared(boxes, problem, unit, source).verdict is Verdict.ACCEPTED

    return needs_one_interpreter(problem, number, proxied, shared)


def _judgement(tested: RunResult, program: RunResult, status: str, reason: str) -> CaseJudgement:
    """What an outcome through the proxy means."""
    if program.result == COMPILE_ERROR and program.ended is Ended.EXITED:
        return case(program, Verdict.COMPILE_ERROR, "the program does not compile")
    failed = None if status == "broken" else limit_exceeded(program) or limit_exceeded(tested)
    if failed is not None:
        return failed
    if status in _UNDECIDED:
        return judge_failure(reason or f"the testing process ended without an outcome: {tested.ended}")
    if status == "passed":
        return case(program, Verdict.ACCEPTED)
    if status == "gone" and program.ended in {Ended.EXITED, Ended.SIGNALED}:
        early = case(program, Verdict.RUNTIME_ERROR, "the program ended before its tests did")
        return crashed(program) or early
    memory = status == "raised" and reason.startswith("MemoryError")
    return case(program, Verdict.MEMORY_LIMIT if memory else _FAILED_VERDICTS[status], reason)


def judge_assert_list(
    boxes: Boxes,
    problem: Problem,
    tests: AssertTests,
    numbers: Sequence[int],
    source: str,
    progress: Callable[[], None],
) -> dict[int, CaseJudgement]:
    """Judge the asserts of a list as plain Python runs them: in turn, against the program imported once.

    What they say of the program stands, by number. A number is left out, and its assert judged by itself,
    where that run says nothing certain: the program or its process ended, the proxy was strained, memory ran
    out, or all asserts together exceeded the limits of one. An assert's cost is an equal share of its
    process's time, and all of its memory. ``progress`` is called after each.
    """
    settled: dict[int, CaseJudgement] = {}
    rest = list(numbers)
    while len(rest) > 1:
        try:
            reached = _judge_together(boxes, problem, tests, rest, source)
        except SandboxFault:
            break
        share = max(len(reached), 1)
        for number, judged in zip(rest, reached, strict=False):
            progress()
            if judged is not None:
                cpu_s, wall_s = judged.cpu_s / share, judged.wall_s / share
                settled[number] = replace(judged, cpu_s=cpu_s, wall_s=wall_s, index=number)
        if len(reached) < 2:
            break  # each ends the process: there is nothing to share
        rest = rest[len(reached) :]
    return settled


def _judge_together(
    boxes: Boxes, problem: Problem, tests: AssertTests, numbers: Sequence[int], source: str
) -> list[CaseJudgement | None]:
    """One pair of processes over several units: those that it came to, None where it leaves them open.

    Raises SandboxFault.
    """
    try:
        units = [_unit(problem, tests, number) for number in numbers]
    except (SyntaxError, ValueError):
        return []
    tested, program = _run_pair(boxes, problem, units, source)
    if limit_exceeded(program) or limit_exceeded(tested):
        return []
    if program.result == COMPILE_ERROR and program.ended is Ended.EXITED:
        return [_judgement(tested, program, "", "")]  # one says it for all
    judged: list[CaseJudgement | None] = []
    for status, reason, strained in _outcomes(tested, len(units)):
        certain = status == "passed" or not (strained or status in _DOUBTFUL or status == "gone")
        outcome = _judgement(tested, program, status, reason) if certain else None
        judged.append(None if outcome and outcome.verdict is Verdict.MEMORY_LIMIT else outcome)
        if status in {"", "gone"}:
            break
    return judged


def _breaks_the_test(boxes: Boxes, problem: Problem, unit: dict[str, Any], source: str) -> bool:
    """Whether test code that gave no outcome fails again on this program, and passes a reference.

    Then it is the program's doing (a test that imports the module which the program names), and no way
    out of a verdict. Without a reference there is no such evidence.
    """
    reference = next(
        (r.source for r in problem.references if r.language in (PYTHON, PYTHON_SCIENTIFIC)), None
    )
    if reference is None or _status(_run_pair(boxes, problem, [unit], source)[0]) not in _UNDECIDED:
        return False
    return _passes(_run_pair(boxes, problem, [unit], reference)[0])


def _passes(tested: RunResult) -> bool:
    return _status(tested) == "passed"


def _status(tested: RunResult) -> str:
    """The status of the only unit."""
    return _outcomes(tested, 1)[0][0]


def _unit(problem: Problem, tests: AssertTests, number: int) -> dict[str, Any]:
    """What the testing process needs to run one unit."""
    kind, code = "unittest", tests.unittest
    if tests.check:
        kind, code = "check", tests.check
    elif tests.asserts:
        kind, code = "asserts", tests.asserts[number]
    assert code is not None
    references = tuple(r.source for r in problem.references if r.language in (PYTHON, PYTHON_SCIENTIFIC))
    names = test_names(f"{tests.setup}\n{code}", tests.entry_point, references)
    return {
        "kind": kind,
        "setup": tests.setup,
        "code": code,
        "entry_point": tests.entry_point,
        "names": list(names.program),
        "imports": {name: list(where) for name, where in names.imports.items()},
        "free": list(names.free),
    }


def _test_source(problem: Problem) -> str:
    """All code of the tests, which may import what the program does not."""
    tests = problem.tests
    if not isinstance(tests, AssertTests):
        return ""
    return "\n".join((tests.setup, tests.check or "", tests.unittest or "", *(tests.asserts or ())))


def _run_pair(
    boxes: Boxes, problem: Problem, units: list[dict[str, Any]], source: str
) -> tuple[RunResult, RunResult]:
    """Both processes, joined by a socket pair, to their end: (testing, program)."""
    limits = problem.limits
    program_limits = run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb)
    memory_mb = max(_TEST_MEMORY_MB, 2 * limits.memory_mb)
    test_limits = run_limits(2 * limits.cpu_s, memory_mb, limits.output_mb)
    imports = [f"import {module}" for unit in units for module, _ in unit["imports"].values()]
    test_box = boxes.python(Side.TESTS, _test_source(problem), *imports)
    program_box = boxes.python(Side.PROGRAM, source)
    near, far = socket.socketpair()
    with near, far:
        program = program_box.start(
            harness_job("program", source.encode("utf-8", "surrogatepass"), program_limits, link=far.fileno())
        )
        far.detach()  # the sandbox closes it from here on
        try:
            job = harness_job(
                "tests", encode(units), _with_wall(test_limits, program_limits), link=near.fileno()
            )
            tested = test_box.start(job)
        except BaseException:
            program.close()
            program.server.kill()
            raise
        near.detach()
        results = supervise([tested, program])
    return results[0], results[1]


def _with_wall(limits: RunLimits, program: RunLimits) -> RunLimits:
    return RunLimits(limits.cpu_s, limits.memory_bytes, limits.output_bytes, outlasting(program))


def _outcomes(tested: RunResult, count: int) -> list[tuple[str, str, bool]]:
    """Status, reason and whether the proxy was strained for ``count`` units, as the testing process wrote
    them; an empty status where it did not."""
    outcomes: list[tuple[str, str, bool]] = []
    if tested.ended is Ended.EXITED and tested.exit_code == 0:
        with suppress(WireError):
            written = decode(tested.result)
            outcomes = [_outcome(entry) for entry in written] if type(written) is list else []
    return (outcomes + [("", "", False)] * count)[:count]


def _outcome(entry: object) -> tuple[str, str, bool]:
    match entry:
        case [str() as status, str() as reason, bool() as strained] if status in _STATUSES:
            return status, reason, strained
        case _:
            return "", "", False
