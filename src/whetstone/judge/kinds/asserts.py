"""Judging ``assert`` tests: test code in one process, the program in another, values between them.

A refusal that the testing process put down stands, whatever the program does then. Only where a problem's own
reference shows that a unit of its tests cannot work so, the unit is judged in one interpreter instead, and
marked: see ``shared_interpreter``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from whetstone.judge.blame import NotJudged, despite_faults, harmless_program
from whetstone.judge.boxes import Boxes
from whetstone.judge.kinds.apart import CannotStandApart
from whetstone.judge.kinds.by_calls import run_units
from whetstone.judge.kinds.pair import REFUSALS, Outcome, Pair, Short, Stopped, unit_of
from whetstone.judge.kinds.shared_interpreter import judge_shared, needs_one_interpreter
from whetstone.judge.languages.table import PYTHON, PYTHON_SCIENTIFIC
from whetstone.judge.outcome import DIFFERS, case, crashed, is_stopped, judge_failure, limit_exceeded
from whetstone.judge.values import MAX_BYTES
from whetstone.problem import AssertTests, Problem
from whetstone.sandbox import Ended, SandboxFault
from whetstone.verdict import CaseJudgement, Verdict, storable

_VERDICTS = {
    "passed": Verdict.ACCEPTED,
    "failed": Verdict.WRONG_ANSWER,
    "unusable": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
}
# What a proxied program can bring about without being wrong.
_DOUBTFUL = frozenset({"unusable", "missing", "broken", "spoiled"})
_NO_OUTCOME = "the testing process ended without an outcome"


@dataclass(frozen=True)
class _Unit:
    """A unit of the tests and the program that meets it."""

    boxes: Boxes
    problem: Problem
    number: int
    content: dict[str, Any]
    source: str

    def meets(self, source: str, expected: Short | None = None) -> tuple[Pair, Outcome | None]:
        """A run of the unit alone with any program. Raises SandboxFault."""
        pair = run_units(self.boxes, self.problem, [self.content], source, expected)
        return pair, pair.outcomes[0] if pair.outcomes else None

    def shares(self, source: str) -> CaseJudgement:
        """The unit in one interpreter with any program. Raises SandboxFault."""
        return judge_shared(self.boxes, self.problem, self.content, source)


def judge_assert(
    boxes: Boxes,
    problem: Problem,
    tests: AssertTests,
    number: int,
    source: str,
    stopped: Stopped | None = None,
) -> CaseJudgement:
    """Run unit ``number`` of the tests against ``source``. Raises SandboxFault.

    A unit is one of ``asserts``, or the whole of ``check`` or ``unittest``; it meets a fresh program, which
    has to say again what it said in the run that a time limit ``stopped``.
    """
    try:
        unit = _Unit(boxes, problem, number, unit_of(boxes, problem, tests, number), source)
    except CannotStandApart as error:
        return judge_failure(str(error))
    except ValueError as error:
        return judge_failure(f"the test code does not compile: {error}")
    stopped = {} if stopped is None else stopped
    pair, outcome = unit.meets(source, stopped.get(number))
    judged = _judged(unit, pair, outcome)
    if is_stopped(judged) and (outcome is None or outcome.status != "passed"):
        stopped[number] = pair.answered
    return judged


def _judged(unit: _Unit, pair: Pair, outcome: Outcome | None) -> CaseJudgement:
    """What an outcome through the proxy means; None is one that was not put down. Raises SandboxFault."""
    ended = _ended(pair, outcome)
    if ended is not None:
        return ended
    outcome = outcome or Outcome("spoiled", f"{_NO_OUTCOME}: {pair.tested.ended}", False)
    strained = outcome.strained or unit.content["inseparable"]
    doubtful = outcome.status in _DOUBTFUL or (strained and outcome.status != "passed")
    try:
        if doubtful and _needs_one_interpreter(unit):
            return _in_one_interpreter(unit)
        if outcome.status in _VERDICTS:
            limit = _limit_raised(outcome.reason) if outcome.status == "raised" else None
            return case(pair.program, limit or _VERDICTS[outcome.status], outcome.reason)
        return _broken(unit, pair, outcome)
    except NotJudged as failure:
        return CaseJudgement(failure.verdict, reason=storable(str(failure)))


def _ended(pair: Pair, outcome: Outcome | None) -> CaseJudgement | None:
    """The judgement where how the processes ended decides, not an outcome. Raises SandboxFault."""
    if pair.compile_error:
        return case(pair.program, Verdict.COMPILE_ERROR, pair.compile_error)
    status = outcome.status if outcome is not None else ""
    if status in REFUSALS:
        return None
    if pair.fault is not None and status != "passed":
        raise pair.fault
    if status == "differs":
        return case(pair.program, Verdict.TIME_LIMIT, DIFFERS)
    limit = limit_exceeded(pair.program) or limit_exceeded(pair.tested)
    if limit is not None and status != "broken":
        return limit
    if not status and not pair.begun:
        raise SandboxFault(f"{_NO_OUTCOME}, before the program had a say: {pair.tested.ended}")
    if outcome is None or status != "gone":
        return None
    if pair.program.ended not in {Ended.EXITED, Ended.SIGNALED}:
        return case(pair.program, Verdict.RUNTIME_ERROR, outcome.reason)
    early = case(pair.program, Verdict.RUNTIME_ERROR, "the program ended before its tests did")
    return crashed(pair.program) or early


def _limit_raised(reason: str) -> Verdict | None:
    """The verdict on a limit that a program meets as an exception."""
    if reason.startswith("MemoryError"):
        return Verdict.MEMORY_LIMIT
    return Verdict.OUTPUT_LIMIT if f"larger than {MAX_BYTES >> 20} MiB" in reason else None


def _needs_one_interpreter(unit: _Unit) -> bool:
    """See ``shared_interpreter``. Raises NotJudged."""

    def proxied(source: str) -> bool:
        return not _fails(unit, source)

    def shared(source: str) -> bool:
        return unit.shares(source).verdict is Verdict.ACCEPTED

    return despite_faults(
        "the sandbox",
        lambda: needs_one_interpreter(unit.problem, unit.number, proxied, shared),
        lambda _: False,
    )


def _in_one_interpreter(unit: _Unit) -> CaseJudgement:
    """The program and the test in one interpreter, twice where a time limit stops it. Raises NotJudged."""

    def harmless(lived_s: float) -> bool:
        unit.shares(harmless_program(lived_s).source)
        return True

    judged = despite_faults("the sandbox", lambda: unit.shares(unit.source), harmless)
    if judged.verdict is Verdict.TIME_LIMIT:
        judged = despite_faults("the sandbox", lambda: unit.shares(unit.source), harmless)
    return judged


def _fails(unit: _Unit, source: str) -> bool:
    """Whether a reference fails the unit, and not because it was stopped, twice. Raises SandboxFault."""
    for _ in range(2):
        pair, outcome = unit.meets(source)
        if outcome is not None and outcome.status in REFUSALS:
            return True
        if pair.fault is not None:
            raise pair.fault
        if limit_exceeded(pair.program) is None and limit_exceeded(pair.tested) is None:
            return outcome is None or outcome.status != "passed"
    return False


def _broken(unit: _Unit, pair: Pair, outcome: Outcome) -> CaseJudgement:
    """Test code that failed as broken code does, or a testing process that died: whose doing that is.

    The program's, where a reference passes. Without a reference nothing shows that it is ours if the program
    had a say in it: it must not be a way out of a verdict. Raises NotJudged.
    """
    python = (PYTHON, PYTHON_SCIENTIFIC)
    reference = next((r.source for r in unit.problem.references if r.language in python), None)
    ours = outcome.status == "broken"
    if reference is not None:
        ours = despite_faults("the sandbox", lambda: _fails(unit, reference), lambda _: False)
    if ours:
        return judge_failure(outcome.reason)
    return case(pair.program, Verdict.WRONG_ANSWER, f"made the test code fail: {outcome.reason}")


@dataclass(frozen=True)
class Together:
    """What running the asserts of a list in turn settled, by number.

    ``stopped``: the first of a process, when a time limit stopped it; it has had its first run.
    """

    settled: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    stopped: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])


def judge_assert_list(
    boxes: Boxes,
    problem: Problem,
    tests: AssertTests,
    numbers: Sequence[int],
    source: str,
    progress: Callable[[], None],
    answered: Stopped,
) -> Together:
    """Judge the asserts of a list as plain Python runs them: in turn, against the program imported once.

    What was put down stands, and so does a crash, or a limit other than time, in the assert in which it
    happened; the asserts behind it meet the program imported anew. A number is left out, and its assert
    judged by itself, only where nothing was said of it: a time limit stopped them, which is that of one and
    here of all together, or the sandbox died. An assert's cost is an equal share of its process's time,
    and all of its memory. ``progress`` is called after each; ``answered`` gets what the program said in one
    that a time limit stopped.
    """
    found = Together()
    rest = list(numbers)
    while len(rest) > 1:
        try:
            units = [_Unit(boxes, problem, n, unit_of(boxes, problem, tests, n), source) for n in rest]
            pair = run_units(boxes, problem, [unit.content for unit in units], source)
        except (ValueError, SandboxFault):
            break
        reached = _reached(units, pair)
        stopped = False
        for number, judged in zip(rest, reached, strict=False):
            progress()
            stopped = judged is not None and is_stopped(judged)
            if stopped:
                answered[number] = pair.answered
            # Where the testing process itself was kept busy, nothing tells what it had been answered.
            if stopped and judged is not None and (number == rest[0] or pair.answered is None):
                found.stopped[number] = replace(judged, index=number)
            elif judged is not None and not stopped:
                cpu_s, wall_s = judged.cpu_s / len(reached), judged.wall_s / len(reached)
                found.settled[number] = replace(judged, cpu_s=cpu_s, wall_s=wall_s, index=number)
        if stopped or pair.fault is not None or len(reached) < 2:
            break  # what ends each process leaves nothing to share
        rest = rest[len(reached) :]
    return found


def _reached(units: Sequence[_Unit], pair: Pair) -> list[CaseJudgement | None]:
    """Judgements on the units that a pair of processes came to, in order; None for one that is left open."""
    limit = limit_exceeded(pair.program) or limit_exceeded(pair.tested)
    complete = len(pair.outcomes) == len(units) and not pair.cut
    # A limit that was seen when all was over was exceeded somewhere: nobody knows by which of them.
    open_ = complete and limit is not None and limit.verdict is not Verdict.TIME_LIMIT
    outcomes: list[Outcome | None] = [*pair.outcomes]
    if not pair.cut and (not pair.outcomes or pair.outcomes[-1].status != "gone"):
        outcomes.append(None)  # it ended in the midst of the next one, if there is one
    judged: list[CaseJudgement | None] = []
    for unit, outcome in zip(units, outcomes, strict=False):
        if outcome is not None and outcome.status == "passed":
            judged.append(None if open_ else case(pair.program, Verdict.ACCEPTED))
            continue
        try:
            judged.append(_judged(unit, pair, outcome))
        except SandboxFault:
            break
    return judged
