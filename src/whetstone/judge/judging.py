"""From a problem and a program to a judgement, in one process: cases, retries, and the final verdict.

The rules:

- Every case of a problem must be accepted for the program to be. The program's verdict is that of the
  first case that was not.
- A refusal stands. A case has one answer: the first that was compared, or the failure in its place. A case is
  run again only after a run that ended before that, and tells the program nothing: when its sandbox died, and
  once after a time limit. That run decides, and looks to the program as the first one did; where a test or an
  interactor may have shown it that it was wrong, it has to say again what it said in the first run, as far as
  that came, or the limit stands.
- A case that could not be judged is not tried again, and makes the whole program JUDGE_ERROR, without a
  score: a share of the cases would be a guess. Where the score does not depend on it (with
  ``stop_at_first_failure``, or all cases count as one), a case that definitely failed settles the matter.
- A program that waited twice until the wall clock limit is not run further: its remaining cases have
  no entry, and count as not accepted.
- Where its deadline passes meanwhile, cases that failed count, and ``late`` says whose doing the rest is.
- A program during whose runs the sandbox dies is judged again; what brings down sandbox after sandbox,
  where a harmless program does not, is RUNTIME_ERROR (see ``blame``).
- The asserts of a list are run as plain Python runs them, in turn against the program imported once; see
  ``asserts.judge_assert_list`` for those that are judged by themselves.
- Without ``fork_per_case`` what runs the cases of a Python program first is one process: see ``sequence``.
- With ``max_cases`` only a seeded subset of the cases is judged, the same for every program; all that is
  said of "every case" then means the subset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from whetstone.judge.blame import judged_despite_faults
from whetstone.judge.boxes import Boxes, CodeState
from whetstone.judge.environments.missing import named_missing
from whetstone.judge.kinds.call import judge_call
from whetstone.judge.kinds.shared_process import SharedProcess, judge_in_sequence
from whetstone.judge.kinds.stdin import judge_stdin
from whetstone.judge.languages.table import language_named
from whetstone.judge.late import DeadlinePassed
from whetstone.judge.options import JudgeOptions
from whetstone.judge.outcome import is_stopped, judge_failure
from whetstone.judge.scoring import chosen_cases, score
from whetstone.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    Program,
    Scoring,
    StdinTests,
    case_count,
)
from whetstone.sandbox import Stopped
from whetstone.sandbox.execute import NotExecuted
from whetstone.verdict import CaseJudgement, Judgement, Verdict

if TYPE_CHECKING:
    from whetstone.judge.kinds.pair import Stopped as Said

MAX_SOURCE_CHARACTERS = 8 << 20
"""A longer program counts as one that does not compile: what carries it has limits of its own."""


def judge_program(
    boxes: Boxes,
    problem: Problem,
    program: Program,
    options: JudgeOptions,
    watcher: Watcher | None = None,
    refused: Sequence[CaseJudgement] = (),
) -> Judgement:
    """Judge ``program``, but for cases that are ``refused`` already. ``watcher`` is told as it goes on."""
    isolation = boxes.tier.label
    boxes.hash_seed = options.hash_seed
    if not program.source.strip():
        return Judgement(Verdict.NO_CODE, [], 0.0, isolation, "there is no program")
    boxes.lost.seconds = 0.0
    watcher = watcher or Watcher()
    runs = _Runs(boxes, problem, program, options, watcher, {case.index: case for case in refused})
    try:
        judgement = runs.to_the_end()
    except Stopped:
        late = watcher.deadline_passed()
        if late is None:
            raise
        judgement = runs.overdue(late)
    return named_missing(judgement, boxes.environment)


class Watcher:
    """Is told how judging goes on. This one does not care."""

    def made(self) -> None:
        """A run is over."""

    def refused(self, cases: list[CaseJudgement]) -> None:
        """These cases are refused, whatever happens from here on."""

    def deadline_passed(self) -> DeadlinePassed | None:
        """Asked when a run was stopped: whether the judgement is due. None: nobody wants it any more."""
        return None


def _is_python(program: Program) -> bool:
    return not language_named(program.language, "the program").run


def _too_long(program: Program) -> bool:
    return len(program.source) > MAX_SOURCE_CHARACTERS


def conclude(
    cases: list[CaseJudgement],
    chosen: Sequence[int],
    scoring: Scoring,
    isolation: str,
    options: JudgeOptions,
    unjudged_cases: Sequence[int] = (),
    why: str = "",
) -> Judgement:
    """The judgement on a program from those on its cases, of which the ``chosen`` were to be run.

    ``unjudged_cases`` have no judgement for no fault of the program; ``why`` says for which.
    """
    shared = any(c.shared_interpreter for c in cases)
    first = next((c for c in cases if c.verdict is not Verdict.ACCEPTED), None)
    paid = options.score_shared_interpreter or not shared
    if first is None and len(cases) == len(chosen):
        earned = 1.0 if paid else None
        return Judgement(Verdict.ACCEPTED, cases, earned, isolation, shared_interpreter=shared)
    unjudged = next((c for c in cases if c.verdict is Verdict.JUDGE_ERROR), None)
    settled = next((c for c in cases if c.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)), None)
    accepted = [c.index for c in cases if c.verdict is Verdict.ACCEPTED]
    earned = score(scoring, chosen, accepted)
    in_doubt = unjudged is not None or bool(unjudged_cases)
    if in_doubt and settled is not None:
        doubtful = [c.index for c in cases if c.verdict is Verdict.JUDGE_ERROR]
        at_best = [*accepted, *doubtful, *unjudged_cases]
        if options.stop_at_first_failure or score(scoring, chosen, at_best) == earned:
            first, in_doubt = settled, False
    if first is None or in_doubt:
        missing = why or f"{len(cases)} of {len(chosen)} cases were judged"
        reason = unjudged.reason if unjudged else missing
        return Judgement(Verdict.JUDGE_ERROR, cases, None, isolation, reason, shared)
    return Judgement(first.verdict, cases, earned if paid else None, isolation, first.reason, shared)


def conclude_unfinished(
    problem: Problem, options: JudgeOptions, cases: Sequence[CaseJudgement], isolation: str, why: str
) -> Judgement:
    """The judgement where only these cases have one, for no fault of the program; ``why`` says for which."""
    chosen = _chosen(problem, options)
    known = {case.index for case in cases}
    missing = [number for number in chosen if number not in known]
    return conclude(list(cases), chosen, problem.scoring, isolation, options, missing, why)


def _chosen(problem: Problem, options: JudgeOptions) -> list[int]:
    return chosen_cases(problem.id, case_count(problem), options.max_cases, options.subset_seed)


class _Runs:
    """The runs of a program, case by case: what was settled stays so."""

    def __init__(
        self,
        boxes: Boxes,
        problem: Problem,
        program: Program,
        options: JudgeOptions,
        watcher: Watcher,
        settled: dict[int, CaseJudgement],
    ) -> None:
        self.settled = settled
        self._boxes, self._problem, self._program = boxes, problem, program
        self._options, self._watcher = options, watcher
        self._chosen = _chosen(problem, options)
        self._shared = SharedProcess()
        self._stopped: dict[int, CaseJudgement] = {}
        self._answered: Said = {}
        self._stalled: set[int] = set()

    def settle(self, judged: Mapping[int, CaseJudgement]) -> None:
        """These are the judgements on these cases."""
        self.settled.update(judged)
        refusals = [c for c in judged.values() if c.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)]
        if refusals:
            self._watcher.refused(refusals)

    def to_the_end(self) -> Judgement:
        """The judgement on the program. Raises Stopped."""
        left = [number for number in self._chosen if number not in self.settled]
        if _is_python(self._program) and not _too_long(self._program):
            if isinstance(self._problem.tests, AssertTests):
                self._start_asserts(self._problem.tests, left)
            elif not self._options.fork_per_case:
                boxes, problem, made = self._boxes, self._problem, self._watcher.made
                self._shared = judge_in_sequence(boxes, problem, left, self._program, made)
                self.settle(self._shared.wrong)
        early = self._shared.accepted
        cases = self._in_order(early)
        if self._bears_no_sharing(cases):
            early = {}
            cases = self._in_order(early)
        return self._concluded(cases, early)

    def overdue(self, late: DeadlinePassed) -> Judgement:
        """The judgement on the program now, when a run of it was stopped."""
        early = self._shared.accepted
        if self._bears_no_sharing(self.settled.values()):
            early = {}
        known = {**self.settled, **early}
        cases = [known[number] for number in self._chosen if number in known]
        missing = [number for number in self._chosen if number not in known]
        waited_s = self._boxes.lost.seconds
        if not missing or not late.is_of_program(waited_s):
            return self._concluded(cases, early, missing, late.why_unjudged(waited_s))
        number = missing[0]
        cases.append(self._stopped.get(number) or late.unfinished_case(number))
        return self._concluded(sorted(cases, key=lambda case: case.index), early)

    def _bears_no_sharing(self, cases: Iterable[CaseJudgement]) -> bool:
        """Whether a case failed in a shared process and was accepted in its own."""
        return any(c.verdict is Verdict.ACCEPTED and c.index in self._shared.failed for c in cases)

    def _concluded(
        self,
        cases: list[CaseJudgement],
        early: Mapping[int, CaseJudgement],
        missing: Sequence[int] = (),
        why: str = "",
    ) -> Judgement:
        problem, isolation = self._problem, self._boxes.tier.label
        judgement = conclude(cases, self._chosen, problem.scoring, isolation, self._options, missing, why)
        return msgspec.structs.replace(judgement, shared_process=any(c.index in early for c in cases))

    def _start_asserts(self, tests: AssertTests, numbers: Sequence[int]) -> None:
        """Run a list of asserts together, as far as that goes."""
        from whetstone.judge.kinds.asserts import judge_assert_list

        source = self._program.source
        boxes, problem, made = self._boxes, self._problem, self._watcher.made
        together = judge_assert_list(boxes, problem, tests, numbers, source, made, self._answered)
        self.settle(together.settled)
        self._stopped = together.stopped

    def _in_order(self, early: Mapping[int, CaseJudgement]) -> list[CaseJudgement]:
        """The judgements on the cases, as far as they are needed: ``early`` ones, settled ones, new runs."""
        cases: list[CaseJudgement] = []
        for number in self._chosen:
            if number not in early and number not in self.settled:
                self.settle({number: msgspec.structs.replace(self._judge_case(number), index=number)})
            judged = early[number] if number in early else self.settled[number]
            cases.append(judged)
            failed = judged.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
            # What does not compile for one case compiles for none.
            over = judged.verdict is Verdict.COMPILE_ERROR or number in self._stalled
            if over or (failed and self._options.stop_at_first_failure):
                break
        return cases

    def _judge_case(self, number: int) -> CaseJudgement:
        """One case, run again where the first run gave no answer: its sandbox died, or time ran out.

        A second run must not be a second guess. So a program is not to know that there was a first one: the
        code kept of it, from which later runs start faster, is put back to what the first one found. And
        where the first run may have shown it that it was wrong, it is held to what it said then
        (``answered``), or, where that is not known (None), is not run again at all.
        """
        if _too_long(self._program):
            return CaseJudgement(Verdict.COMPILE_ERROR, reason="the program's text is too long")
        attempt = partial(self._attempt, number, self._boxes.last_code.state())
        judged = self._stopped.get(number) or judged_despite_faults(attempt, self._program)
        unknown = self._answered.get(number, []) is None
        if unknown or not is_stopped(judged) or not self._options.confirm_time_limit:
            return judged
        self._stopped[number] = msgspec.structs.replace(judged, index=number)
        # Time may have been short for what else ran on the machine; the second run decides.
        again = judged_despite_faults(attempt, self._program)
        cpu_s = self._problem.limits.cpu_s
        if again.verdict is Verdict.TIME_LIMIT and judged.cpu_s < cpu_s and again.cpu_s < cpu_s:
            self._stalled.add(number)  # it slept through its wall clock limit twice: so would other cases
        return again

    def _attempt(self, number: int, before: CodeState, program: Program) -> CaseJudgement:
        """One run of a case from the code kept ``before``, of our program or a harmless one (see ``blame``).

        Raises SandboxFault. A tool that cannot be executed is none for our program: no other attempt would
        find it.
        """
        boxes, problem, tests = self._boxes, self._problem, self._problem.tests
        boxes.last_code.restore(before)
        # The harmless program has said nothing yet.
        answered: Said = self._answered if program is self._program else {}
        try:
            if isinstance(tests, StdinTests):
                return judge_stdin(boxes, problem, tests.cases[number], program)
            if isinstance(tests, CallTests):
                return judge_call(boxes, problem, tests, tests.cases[number], program.source)
            # A worker imports these two when it meets their kind of test: they bring more with them than the
            # rest of the judge, and most workers meet one kind.
            if isinstance(tests, InteractiveTests):
                from whetstone.judge.kinds.interactive import judge_interactive

                return judge_interactive(boxes, problem, tests, number, program, answered)
            from whetstone.judge.kinds.asserts import judge_assert

            return judge_assert(boxes, problem, tests, number, program.source, answered)
        except NotExecuted as fault:
            if program is not self._program:
                raise
            return judge_failure(str(fault))
        finally:
            self._watcher.made()
