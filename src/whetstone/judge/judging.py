"""From a problem and a program to a judgement, in one process: cases, retries, and the final verdict.

The rules:

- A program is accepted if every case is accepted. Otherwise its verdict is that of the first other case.
- A refusal is final. A case has one answer: the first one that was compared, or the failure instead of it. A
  case is run again only if its run ended before that: after its sandbox died, and once after a time limit.
  The second run decides. To the program, it looks like the first one. If a test or an interactor may have
  shown the program that it was wrong, its messages must begin with those of the first run. Otherwise the time
  limit stands.
- A case that could not be judged is not tried again. The program is then JUDGE_ERROR without a score, because
  a share of the cases would be a guess. If the score does not depend on this case (with
  ``stop_at_first_failure``, or if all cases count as one), a case that failed decides.
- A program that slept twice until the wall clock limit is not run further. Its remaining cases have no entry,
  and count as not accepted.
- If the deadline passes meanwhile, failed cases count, and ``deadline`` decides about the others.
- If the sandbox dies during a run, the program is judged again. A program that ends one sandbox after the
  other, while a harmless program does not, is RUNTIME_ERROR (see ``failure_cause``).
- The asserts of a list run one after the other against the program, which is imported once. Without
  ``fork_per_case``, so do all cases of a Python program: see ``shared_process``.
- With ``max_cases`` only a seeded subset of the cases is judged, the same for every program. "Every case"
  then means every case of the subset.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import TYPE_CHECKING

import msgspec

from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    Program,
    Scoring,
    StdinTests,
    case_count,
)
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.judge.deadline import DeadlinePassed
from whetstone.judge.environments.missing import explain_missing_packages
from whetstone.judge.failure_cause import judged_despite_faults
from whetstone.judge.kinds.call import judge_call
from whetstone.judge.kinds.shared_process import SharedProcess, judge_in_shared_processes
from whetstone.judge.kinds.stdin import judge_stdin
from whetstone.judge.languages.table import is_python
from whetstone.judge.options import JudgeOptions
from whetstone.judge.outcome import is_stopped, judge_failure
from whetstone.judge.sandboxes import CodeState, SandboxSet
from whetstone.sandbox import SandboxStopped
from whetstone.sandbox.execute import NotExecuted

if TYPE_CHECKING:
    from whetstone.judge.kinds.assert_processes import FirstAnswers

# A longer program counts as one that does not compile, because messages are limited too.
MAX_SOURCE_CHARACTERS = 8 << 20


def judge_program(
    sandboxes: SandboxSet,
    problem: Problem,
    program: Program,
    options: JudgeOptions,
    watcher: JudgingObserver | None = None,
    refused: Sequence[CaseJudgement] = (),
) -> Judgement:
    """Judge ``program``, except for cases that are already ``refused``. ``watcher`` gets the callbacks."""
    isolation = sandboxes.tier.label
    sandboxes.hash_seed = options.hash_seed
    if not program.source.strip():
        return Judgement(Verdict.NO_CODE, [], 0.0, isolation, "there is no program")
    sandboxes.lost.seconds = 0.0
    watcher = watcher or JudgingObserver()
    runs = _Runs(sandboxes, problem, program, options, watcher, {case.index: case for case in refused})
    try:
        judgement = runs.run_all()
    except SandboxStopped:
        deadline = watcher.deadline_passed()
        if deadline is None:
            raise
        judgement = runs.conclude_overdue(deadline)
    return explain_missing_packages(judgement, sandboxes.environment)


class JudgingObserver:
    """The callbacks of judging. This base class ignores them."""

    def on_run_end(self) -> None:
        """Called after each run."""

    def on_refused(self, cases: list[CaseJudgement]) -> None:
        """Called with refused cases. They stay refused."""

    def deadline_passed(self) -> DeadlinePassed | None:
        """Called after a run was stopped. Returns the passed deadline, or None to cancel the judgement."""
        return None


def _too_long(program: Program) -> bool:
    return len(program.source) > MAX_SOURCE_CHARACTERS


def conclude(
    cases: list[CaseJudgement],
    chosen: Sequence[int],
    scoring: Scoring,
    isolation: str,
    options: JudgeOptions,
    unjudged_cases: Sequence[int] = (),
    missing_reason: str = "",
) -> Judgement:
    """Return the judgement on a program from the judgements on its ``chosen`` cases.

    ``unjudged_cases`` have no judgement, through no fault of the program, for the reason ``missing_reason``.
    """
    shared = any(c.shared_interpreter for c in cases)
    first = next((c for c in cases if c.verdict is not Verdict.ACCEPTED), None)
    is_scored = options.score_shared_interpreter or not shared
    if first is None and cases and len(cases) == len(chosen):
        earned = 1.0 if is_scored else None
        return Judgement(Verdict.ACCEPTED, cases, earned, isolation, shared_interpreter=shared)
    unjudged = next((c for c in cases if c.verdict is Verdict.JUDGE_ERROR), None)
    settled = next((c for c in cases if c.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)), None)
    accepted = [c.index for c in cases if c.verdict is Verdict.ACCEPTED]
    earned = score(scoring, chosen, accepted)
    in_doubt = unjudged is not None or bool(unjudged_cases)
    # A case without a judgement does not matter if the score would be the same with this case accepted.
    if in_doubt and settled is not None:
        doubtful = [c.index for c in cases if c.verdict is Verdict.JUDGE_ERROR]
        at_best = [*accepted, *doubtful, *unjudged_cases]
        if options.stop_at_first_failure or score(scoring, chosen, at_best) == earned:
            first, in_doubt = settled, False
    if first is None or in_doubt:
        missing = missing_reason or f"{len(cases)} of {len(chosen)} cases were judged"
        reason = unjudged.reason if unjudged else missing
        return Judgement(Verdict.JUDGE_ERROR, cases, None, isolation, reason, shared)
    return Judgement(first.verdict, cases, earned if is_scored else None, isolation, first.reason, shared)


def conclude_unfinished(
    problem: Problem,
    options: JudgeOptions,
    cases: Sequence[CaseJudgement],
    isolation: str,
    missing_reason: str,
) -> Judgement:
    """Return the judgement if only these cases were judged, through no fault of the program."""
    chosen = _chosen(problem, options)
    known = {case.index for case in cases}
    missing = [number for number in chosen if number not in known]
    return conclude(list(cases), chosen, problem.scoring, isolation, options, missing, missing_reason)


def _chosen(problem: Problem, options: JudgeOptions) -> list[int]:
    return chosen_cases(problem.id, case_count(problem), options.max_cases, options.subset_seed)


class _Runs:
    """The runs of a program, case by case. The judgement on a case is final."""

    def __init__(
        self,
        sandboxes: SandboxSet,
        problem: Problem,
        program: Program,
        options: JudgeOptions,
        watcher: JudgingObserver,
        settled: dict[int, CaseJudgement],
    ) -> None:
        self.settled = settled
        self._sandboxes, self._problem, self._program = sandboxes, problem, program
        self._options, self._watcher = options, watcher
        self._chosen = _chosen(problem, options)
        self._shared = SharedProcess()
        self._stopped: dict[int, CaseJudgement] = {}
        self._answered: FirstAnswers = {}
        self._stalled: set[int] = set()

    def record(self, judged: Mapping[int, CaseJudgement]) -> None:
        """Record final judgements on cases, by number."""
        self.settled.update(judged)
        refusals = [c for c in judged.values() if c.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)]
        if refusals:
            self._watcher.on_refused(refusals)

    def run_all(self) -> Judgement:
        """Run all cases, and return the judgement on the program. Raises SandboxStopped."""
        remaining = [number for number in self._chosen if number not in self.settled]
        may_share = isinstance(self._problem.tests, AssertTests) or not self._options.fork_per_case
        if may_share and is_python(self._program.language) and not _too_long(self._program):
            self._shared = judge_in_shared_processes(
                self._sandboxes,
                self._problem,
                remaining,
                self._program.source,
                self._watcher.on_run_end,
                self._answered,
            )
            self.record(self._shared.final)
            self._stopped = self._shared.stopped
        shared = self._shared.accepted
        cases = self._judge_cases(shared)
        if self._sharing_changes_behaviour(cases):
            shared = {}
            cases = self._judge_cases(shared)
        return self._conclude(cases, shared)

    def conclude_overdue(self, deadline: DeadlinePassed) -> Judgement:
        """Return the judgement on the program after its deadline passed and its run was stopped."""
        shared = self._shared.accepted
        if self._sharing_changes_behaviour(self.settled.values()):
            shared = {}
        known = {**self.settled, **shared}
        cases = [known[number] for number in self._chosen if number in known]
        missing = [number for number in self._chosen if number not in known]
        waited_s = self._sandboxes.lost.seconds
        if not missing or not deadline.is_of_program(waited_s):
            return self._conclude(cases, shared, missing, deadline.why_unjudged(waited_s))
        number = missing[0]
        cases.append(self._stopped.get(number) or deadline.unfinished_case(number))
        return self._conclude(sorted(cases, key=lambda case: case.index), shared)

    def _sharing_changes_behaviour(self, cases: Iterable[CaseJudgement]) -> bool:
        """Return whether a case failed in a shared process and was accepted in its own."""
        return any(c.verdict is Verdict.ACCEPTED and c.index in self._shared.failed for c in cases)

    def _conclude(
        self,
        cases: list[CaseJudgement],
        shared: Mapping[int, CaseJudgement],
        missing: Sequence[int] = (),
        missing_reason: str = "",
    ) -> Judgement:
        problem, isolation = self._problem, self._sandboxes.tier.label
        judgement = conclude(
            cases, self._chosen, problem.scoring, isolation, self._options, missing, missing_reason
        )
        return msgspec.structs.replace(judgement, shared_process=any(c.index in shared for c in cases))

    def _judge_cases(self, shared: Mapping[int, CaseJudgement]) -> list[CaseJudgement]:
        """Return the judgements on the cases, as far as needed. Cases without one are run now."""
        cases: list[CaseJudgement] = []
        for number in self._chosen:
            if number not in shared and number not in self.settled:
                self.record({number: msgspec.structs.replace(self._judge_case(number), index=number)})
            judged = shared[number] if number in shared else self.settled[number]
            cases.append(judged)
            failed = judged.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
            # The source is the same for all cases, so none of them compiles.
            over = judged.verdict is Verdict.COMPILE_ERROR or number in self._stalled
            if over or (failed and self._options.stop_at_first_failure):
                break
        return cases

    def _judge_case(self, number: int) -> CaseJudgement:
        """Judge one case. It is run again if the first run gave no answer: its sandbox died, or time ran out.

        A second run must give the program no second attempt. So the program must not know that there was a
        first one: its cached code is reset to the state before the first run. If the first run may have shown
        it that it was wrong, its messages must repeat those of that run (``answered``). If those are not
        known (None), it is not run again.
        """
        if _too_long(self._program):
            return CaseJudgement(Verdict.COMPILE_ERROR, reason="the program's text is too long")
        attempt = partial(self._attempt, number, self._sandboxes.last_code.state())
        judged = self._stopped.get(number) or judged_despite_faults(attempt, self._program)
        unknown = self._answered.get(number, []) is None
        if unknown or not is_stopped(judged) or not self._options.confirm_time_limit:
            return judged
        self._stopped[number] = msgspec.structs.replace(judged, index=number)
        # Other work on the machine may have caused the time limit, so the second run decides.
        again = judged_despite_faults(attempt, self._program)
        cpu_s = self._problem.limits.cpu_s
        if again.verdict is Verdict.TIME_LIMIT and judged.cpu_s < cpu_s and again.cpu_s < cpu_s:
            self._stalled.add(number)  # it slept until the wall clock limit twice, as it would in other cases
        return again

    def _attempt(self, number: int, before: CodeState, program: Program) -> CaseJudgement:
        """Run a case once with the cached code ``before``, for the program or for a harmless one.

        Raises SandboxFault. A compiler that cannot be executed is a JUDGE_ERROR without other attempts,
        because they would fail too. See ``failure_cause`` for the harmless program.
        """
        sandboxes, problem, tests = self._sandboxes, self._problem, self._problem.tests
        sandboxes.last_code.restore(before)
        # The harmless program has no first run that it must repeat.
        answered: FirstAnswers = self._answered if program is self._program else {}
        try:
            if isinstance(tests, StdinTests):
                return judge_stdin(sandboxes, problem, tests.cases[number], program)
            if isinstance(tests, CallTests):
                return judge_call(sandboxes, problem, tests, tests.cases[number], program.source)
            # A worker imports these two when it meets their kind of test: they bring more with them than the
            # rest of the judge, and most workers meet one kind.
            if isinstance(tests, InteractiveTests):
                from whetstone.judge.kinds.interactive import judge_interactive

                return judge_interactive(sandboxes, problem, tests, number, program, answered)
            from whetstone.judge.kinds.asserts import judge_assert

            assert isinstance(tests, AssertTests)
            return judge_assert(sandboxes, problem, tests, number, program.source, answered)
        except NotExecuted as fault:
            if program is not self._program:
                raise
            return judge_failure(str(fault))
        finally:
            self._watcher.on_run_end()


def chosen_cases(problem_id: str, count: int, max_cases: int | None, seed: int) -> list[int]:
    """Return the numbers of the cases to run, in the problem's order.

    The result depends only on the arguments, so all programs for a problem get the same cases while the seed
    stays the same. All cases are equally likely. ``max_cases`` None means all.
    """
    numbers = list(range(count))
    if max_cases is None or max_cases >= count:
        return numbers
    # Only `random()` is guaranteed to return the same numbers in every version of Python.
    draw = random.Random(f"{seed}:{problem_id}")
    for at in range(max_cases):
        other = at + int(draw.random() * (count - at))
        numbers[at], numbers[other] = numbers[other], numbers[at]
    return sorted(numbers[:max_cases])


def score(scoring: Scoring, counted: Collection[int], accepted: Collection[int]) -> float:
    """Return the score in [0, 1] for the ``accepted`` ones of the ``counted`` cases.

    ``counted``: the numbers of all cases, or of the chosen subset. With groups, a group counts with its cases
    in the subset. A group without any is left out, and the weights are relative to the sum of the others. The
    score is 1.0 exactly if every counted case is accepted.
    """
    chosen, right = set(counted), set(accepted)
    if chosen <= right:
        return 1.0
    if scoring.mode == "all":
        return 0.0
    if scoring.mode == "fraction":
        return len(chosen & right) / len(chosen)
    groups = [(group.weight, chosen.intersection(group.cases)) for group in scoring.groups]
    earned = fsum(weight for weight, cases in groups if cases and cases <= right)
    return earned / fsum(weight for weight, cases in groups if cases)
