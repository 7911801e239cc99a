"""What generated cases are worth: judged in the sandbox, against a reference and against programs.

The rules, and what each is against, are in docs/workflows.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from whetstone.errors import UserError
from whetstone.problem import Problem, Program, Scoring
from whetstone.verdict import Judgement, Verdict
from whetstone.workflow.episode import ProgramJudge
from whetstone.workflow.generated import Generated

_LIMITS = (Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT, Verdict.OUTPUT_LIMIT)
_NEVER_RAN = (Verdict.NO_CODE, Verdict.COMPILE_ERROR)


class Trial(Struct, frozen=True):
    """What came of a program's cases. ``valid``: the reference passes them; None where nobody knows.

    approves: the program passes them. refuses: it fails by an answer, not by a mere limit. judgement: of the
    program, by these cases.
    """

    valid: bool | None
    approves: bool = False
    refuses: bool = False
    judgement: Judgement | None = None


class CaseTrials:
    """Tries generated cases by a judge. What is known of a problem's reference is kept."""

    def __init__(self, judge: ProgramJudge) -> None:
        self._judge = judge
        self._references: dict[str, asyncio.Task[Program | None]] = {}

    async def reference(self, problem: Problem) -> Program | None:
        """The first reference that passes all tests of its problem; None where there is none, or no verdict.

        Judged once for each problem, but for a judge that failed.
        """
        known = self._references.get(problem.id)
        if known is None:
            known = self._references[problem.id] = asyncio.ensure_future(self._validated(problem))
        return await asyncio.shield(known)

    async def tried(
        self,
        problem: Problem,
        tests: Generated,
        program: str | None,
        truth: Judgement | None,
        *,
        always: bool = False,
    ) -> Trial:
        """Try cases by the reference, then the program by them. ``truth``: the verdict of the real tests.
        ``always``: also by cases that are not valid."""
        reference = await self.reference(problem)
        if reference is None:
            return Trial(None)
        by_reference = await self._by(problem, tests, reference)
        if by_reference is None or by_reference.verdict is Verdict.JUDGE_ERROR:
            return Trial(None if by_reference else False)
        valid = by_reference.accepted
        if program is None or truth is None or not (valid or always):
            return Trial(valid)
        found = await self._by(problem, tests, Program(problem.language, program))
        if found is None or found.verdict is Verdict.JUDGE_ERROR:
            return Trial(None)
        return Trial(valid, found.accepted, refuses(found, truth), found)

    async def has_teeth(self, problem: Problem, tests: Generated, wrong: Sequence[Program]) -> bool:
        """Whether the cases refuse at least one of the programs, which are known to be wrong."""
        for program in wrong:
            found = await self._by(problem, tests, program)
            if found is not None and refuses(found, None):
                return True
        return False

    async def _validated(self, problem: Problem) -> Program | None:
        for program in problem.references:
            judgement = await self._judge.judge(problem, program)
            if judgement.accepted:
                return program
            if judgement.verdict is Verdict.JUDGE_ERROR:
                del self._references[problem.id]
                return None
        return None

    async def _by(self, problem: Problem, tests: Generated, program: Program) -> Judgement | None:
        """The verdict by generated cases alone; None for cases that cannot even be handed to a program."""
        generated = replace(problem, tests=tests, scoring=Scoring())
        try:
            return await self._judge.judge(generated, program, stop_at_first_failure=False)
        except UserError:
            return None


def can_be_tried(truth: Judgement | None) -> bool:
    """Whether a program has run at all, so that cases can tell something of it."""
    return truth is not None and truth.score is not None and truth.verdict not in _NEVER_RAN


def refuses(found: Judgement, truth: Judgement | None) -> bool:
    """Whether a verdict by cases says that the program is wrong.

    A wrong answer and a crash do. A limit does only where the real tests found the program beyond that same
    limit: otherwise huge inputs would refuse programs, and test nothing.
    """
    verdicts = {case.verdict for case in found.cases}
    if verdicts & {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR}:
        return True
    return truth is not None and truth.verdict in _LIMITS and truth.verdict in verdicts


def diagnosed(trial: Trial, truth: Judgement, *, teeth: bool) -> bool:
    """Whether valid cases say of the program what the real tests say. An approval needs ``teeth``: the same
    cases refuse some program that is known to be wrong, where one is known."""
    return trial.valid is True and (trial.approves and teeth if truth.accepted else trial.refuses)
