"""Judge ``assert`` tests: test code in one process, the program in another, values between them.

A failure that the test process recorded is final, whatever the program does afterwards.

In one interpreter, a program can reach the expected values of the test and forge its outcome. So a unit is
judged in one only if a reference of the problem fails it through the proxy and passes it in one interpreter.
The problem alone decides it; the program under test has no influence. Such a judgement is marked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from msgspec import msgpack
from msgspec.structs import replace

from whetstone.core.problem import AssertTests, Problem
from whetstone.core.verdict import CaseJudgement, Verdict, storable
from whetstone.judge.failure_cause import NotJudged, despite_faults, harmless_program
from whetstone.judge.kinds.assert_code import NotSeparable
from whetstone.judge.kinds.assert_conversation import run_units
from whetstone.judge.kinds.assert_processes import (
    REFUSALS,
    AnswerDigest,
    FirstAnswers,
    Pair,
    UnitOutcome,
    unit_of,
)
from whetstone.judge.languages.table import is_python
from whetstone.judge.outcome import (
    DIFFERS,
    case,
    compile_failure,
    crashed,
    is_stopped,
    judge_failure,
    limit_exceeded,
    run_limits,
)
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import MAX_BYTES, WireError, decode, encode
from whetstone.sandbox import EndReason, RunResult, SandboxFault

_VERDICTS = {
    "passed": Verdict.ACCEPTED,
    "failed": Verdict.WRONG_ANSWER,
    "unusable": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
}
_SHARED_VERDICTS = {
    "failed": Verdict.WRONG_ANSWER,
    # The reference passes, so the test code is correct: the program manipulated it.
    "broken": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
}
# With these statuses, the proxy may have caused the failure of a correct program.
_PROXY_STATUSES = frozenset({"unusable", "missing", "broken", "spoiled"})
_MAX_DECISIONS = 4096
# The decisions of this worker whether a unit of a problem must be judged in one interpreter.
_decisions: dict[tuple[bytes, int], bool] = {}
_NO_OUTCOME = "the test process ended without an outcome"


@dataclass(frozen=True)
class _Unit:
    """A unit of the tests, and the program that it tests."""

    sandboxes: SandboxSet
    problem: Problem
    number: int
    content: dict[str, Any]
    source: str

    def run(self, source: str, expected: AnswerDigest | None = None) -> tuple[Pair, UnitOutcome | None]:
        """Run the unit alone, with any program. Raises SandboxFault."""
        pair = run_units(self.sandboxes, self.problem, [self.content], source, expected)
        return pair, pair.outcomes[0] if pair.outcomes else None

    def run_shared(self, source: str) -> CaseJudgement:
        """Run the unit and any program in one interpreter. Raises SandboxFault."""
        # The result must contain this token. A program that only writes an outcome and exits is not believed.
        token = os.urandom(16)
        payload = encode([token, source, self.content])
        texts = source, self.content["setup"], self.content["code"]
        job = harness_job("shared_interpreter", payload, run_limits(self.problem.limits))
        result = self.sandboxes.python(SandboxRole.SHARED, *texts).run(job)
        return replace(_shared_judgement(result, token), shared_interpreter=True)


def judge_assert(
    sandboxes: SandboxSet,
    problem: Problem,
    tests: AssertTests,
    number: int,
    source: str,
    stopped: FirstAnswers | None = None,
) -> CaseJudgement:
    """Run unit ``number`` of the tests against ``source``. Raises SandboxFault.

    A unit is one of ``asserts``, or the whole of ``check`` or ``unittest``. It runs with a fresh program. If
    a time limit ``stopped`` an earlier run, the program must repeat the messages of that run.
    """
    try:
        unit = _Unit(sandboxes, problem, number, unit_of(sandboxes, problem, tests, number), source)
    except NotSeparable as error:
        return judge_failure(str(error))
    except ValueError as error:
        return judge_failure(f"the test code does not compile: {error}")
    stopped = {} if stopped is None else stopped
    pair, outcome = unit.run(source, stopped.get(number))
    judged = _judge_outcome(unit, pair, outcome)
    if is_stopped(judged) and (outcome is None or outcome.status != "passed"):
        stopped[number] = pair.answered
    return judged


def _judge_outcome(unit: _Unit, pair: Pair, outcome: UnitOutcome | None) -> CaseJudgement:
    """Return the judgement for an outcome, which is None if the test process recorded none.

    Raises SandboxFault.
    """
    judged = _judge_process_end(pair, outcome)
    if judged is not None:
        return judged
    outcome = outcome or UnitOutcome("spoiled", f"{_NO_OUTCOME}: {pair.tested.ended}", False)
    strained = outcome.strained or unit.content["inseparable"]
    proxy_may_be_cause = outcome.status in _PROXY_STATUSES or (strained and outcome.status != "passed")
    try:
        if proxy_may_be_cause and _needs_one_interpreter(unit):
            return _judge_in_one_interpreter(unit)
        if outcome.status in _VERDICTS:
            limit = _verdict_of_limit_exception(outcome.reason) if outcome.status == "raised" else None
            return case(pair.program, limit or _VERDICTS[outcome.status], outcome.reason)
        return _judge_broken_test(unit, pair, outcome)
    except NotJudged as failure:
        return CaseJudgement(failure.verdict, reason=storable(str(failure)))


def _judge_process_end(pair: Pair, outcome: UnitOutcome | None) -> CaseJudgement | None:
    """Return the judgement if the ends of the processes decide it; None if the outcome decides.

    Raises SandboxFault.
    """
    if pair.compile_error:
        return case(pair.program, Verdict.COMPILE_ERROR, pair.compile_error)
    status = outcome.status if outcome is not None else ""
    if status in REFUSALS:
        return None
    # A recorded pass is final. Any other unit runs again after a fault.
    if pair.fault is not None and status != "passed":
        raise pair.fault
    if status == "differs":
        return case(pair.program, Verdict.TIME_LIMIT, DIFFERS)
    limit = limit_exceeded(pair.program) or limit_exceeded(pair.tested)
    if limit is not None and status != "broken":
        return limit
    # The program has sent nothing yet, so it cannot be the cause. The fault makes the judge try again.
    if not status and not pair.begun:
        raise SandboxFault(f"{_NO_OUTCOME}, before the program could influence it: {pair.tested.ended}")
    if outcome is None or status != "gone":
        return None
    if pair.program.ended not in {EndReason.EXITED, EndReason.SIGNALED}:
        return case(pair.program, Verdict.RUNTIME_ERROR, outcome.reason)
    early = case(pair.program, Verdict.RUNTIME_ERROR, "the program ended before its tests")
    return crashed(pair.program) or early


def _verdict_of_limit_exception(reason: str) -> Verdict | None:
    """Return the verdict if the program exceeded a limit that it sees as an exception; else None."""
    if reason.startswith("MemoryError"):
        return Verdict.MEMORY_LIMIT
    return Verdict.OUTPUT_LIMIT if f"larger than {MAX_BYTES >> 20} MiB" in reason else None


def _needs_one_interpreter(unit: _Unit) -> bool:
    """Return whether the unit must be judged in one interpreter. Raises NotJudged."""
    key = (_fingerprint(unit.problem, unit.sandboxes.environment.label), unit.number)
    if key not in _decisions:
        references = [r.source for r in unit.problem.references if is_python(r.language)]
        found = despite_faults(
            "the sandbox",
            lambda: any(_passes_only_shared(unit, source) for source in references),
            lambda _: False,
        )
        while len(_decisions) >= _MAX_DECISIONS:
            del _decisions[next(iter(_decisions))]
        _decisions[key] = found
    return _decisions[key]


def _passes_only_shared(unit: _Unit, source: str) -> bool:
    # The reference must fail twice through the proxy, because the machine may cause one failure.
    return (
        _reference_fails(unit, source)
        and unit.run_shared(source).verdict is Verdict.ACCEPTED
        and _reference_fails(unit, source)
    )


def _fingerprint(problem: Problem, environment: str) -> bytes:
    """Return a digest of all that the decision depends on."""
    texts = [problem.statement, problem.starter, environment]
    parts = [problem.tests, texts, problem.references, problem.limits]
    return blake2b(msgpack.encode(parts), digest_size=16).digest()


def _judge_in_one_interpreter(unit: _Unit) -> CaseJudgement:
    """Run the program and the test in one interpreter, and once more after a time limit. Raises NotJudged."""

    def harmless(lived_s: float) -> bool:
        unit.run_shared(harmless_program(lived_s).source)
        return True

    judged = despite_faults("the sandbox", lambda: unit.run_shared(unit.source), harmless)
    if judged.verdict is Verdict.TIME_LIMIT:
        judged = despite_faults("the sandbox", lambda: unit.run_shared(unit.source), harmless)
    return judged


def _shared_judgement(result: RunResult, token: bytes) -> CaseJudgement:
    failed = limit_exceeded(result)
    if failed is None and (why := compile_failure(result.result)):
        return case(result, Verdict.COMPILE_ERROR, why)
    failed = failed or crashed(result)
    if failed is not None:
        return failed
    try:
        outcome = decode(result.result)
    except WireError:
        outcome = None
    match outcome:
        case [bytes() as returned, "passed", str()] if returned == token:
            return case(result, Verdict.ACCEPTED)
        case [bytes() as returned, str() as status, str() as reason] if (
            returned == token and status in _SHARED_VERDICTS
        ):
            memory = status == "raised" and reason.startswith("MemoryError")
            return case(result, Verdict.MEMORY_LIMIT if memory else _SHARED_VERDICTS[status], reason)
        case _:
            return case(result, Verdict.RUNTIME_ERROR, "the program ended before its tests")


def _reference_fails(unit: _Unit, source: str) -> bool:
    """Return whether a reference fails the unit. Two runs that end by a limit are no failure.

    Raises SandboxFault.
    """
    # A slow machine can cause one time limit, so only the second one is taken as the answer.
    for _ in range(2):
        pair, outcome = unit.run(source)
        if outcome is not None and outcome.status in REFUSALS:
            return True
        if pair.fault is not None:
            raise pair.fault
        if limit_exceeded(pair.program) is None and limit_exceeded(pair.tested) is None:
            return outcome is None or outcome.status != "passed"
    return False


def _judge_broken_test(unit: _Unit, pair: Pair, outcome: UnitOutcome) -> CaseJudgement:
    """Judge a unit whose test code failed like defective code, or whose test process died. Raises NotJudged.

    If a reference passes, the program is at fault. Without a reference, the program is at fault if it
    influenced the test process: breaking the test must not help a program to avoid its verdict.
    """
    reference = next((r.source for r in unit.problem.references if is_python(r.language)), None)
    test_is_broken = outcome.status == "broken"
    if reference is not None:
        test_is_broken = despite_faults(
            "the sandbox", lambda: _reference_fails(unit, reference), lambda _: False
        )
    if test_is_broken:
        return judge_failure(outcome.reason)
    return case(pair.program, Verdict.WRONG_ANSWER, f"made the test code fail: {outcome.reason}")


def judge_assert_list(
    sandboxes: SandboxSet,
    problem: Problem,
    tests: AssertTests,
    numbers: Sequence[int],
    source: str,
    first_answers: FirstAnswers,
) -> Iterator[CaseJudgement | None]:
    """Run these asserts in one process; see ``shared_process``. Raises SandboxFault."""
    try:
        units = [_Unit(sandboxes, problem, n, unit_of(sandboxes, problem, tests, n), source) for n in numbers]
        pair = run_units(sandboxes, problem, [unit.content for unit in units], source)
    except ValueError:
        return
    for number, judged in zip(numbers, _judge_reached(units, pair), strict=False):
        if judged is not None and is_stopped(judged):
            first_answers[number] = pair.answered
        yield judged
    if pair.fault is not None:
        raise pair.fault


def _judge_reached(units: Sequence[_Unit], pair: Pair) -> Iterator[CaseJudgement | None]:
    """Yield judgements on the units that the processes reached, in order; None for an undecided unit.

    Raises SandboxFault.
    """
    limit = limit_exceeded(pair.program) or limit_exceeded(pair.tested)
    complete = len(pair.outcomes) == len(units) and not pair.cut
    # If a limit is detected only at the end, it is unknown which assert exceeded it.
    is_open = complete and limit is not None and limit.verdict is not Verdict.TIME_LIMIT
    outcomes: list[UnitOutcome | None] = [*pair.outcomes]
    if not pair.cut and (not pair.outcomes or pair.outcomes[-1].status != "gone"):
        # The process ended during the next unit, if there is one.
        outcomes.append(None)
    for unit, outcome in zip(units, outcomes, strict=False):
        if outcome is not None and outcome.status == "passed":
            yield None if is_open else case(pair.program, Verdict.ACCEPTED)
        else:
            yield _judge_outcome(unit, pair, outcome)
