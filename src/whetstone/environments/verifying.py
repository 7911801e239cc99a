"""Evaluates generated cases: in the sandbox, against a reference solution and against programs.

docs/environments.md explains the rules and their reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program, Scoring
from whetstone.core.verdict import Judgement, Verdict, is_fault_of_tests
from whetstone.environments.episode import ProgramJudge
from whetstone.environments.generated_cases import GeneratedTests

_LIMIT_VERDICTS = (Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT, Verdict.OUTPUT_LIMIT)
_NOT_RUN = (Verdict.NO_CODE, Verdict.COMPILE_ERROR)


class VerifierTrial(Struct, frozen=True):
    """The result of a program's cases.

    valid: whether the reference passes them; None if the sandbox failed, or no correct reference is known.
    accepts_program: the program passes them. rejects_program: the program fails them by an answer, not only
    by a limit. judgement: of the program, by these cases.
    """

    valid: bool | None
    accepts_program: bool = False
    rejects_program: bool = False
    judgement: Judgement | None = None


class CaseTrials:
    """Tries generated cases with a judge. It caches each problem's reference."""

    def __init__(self, judge: ProgramJudge) -> None:
        self._judge = judge
        self._references: dict[str, asyncio.Task[Program | None]] = {}

    async def reference(self, problem: Problem) -> Program | None:
        """Return the first reference that passes all tests of its problem; None if there is none, or no
        verdict.

        It is judged once for each problem, unless the judge failed.
        """
        known = self._references.get(problem.id)
        if known is None:
            known = self._references[problem.id] = asyncio.ensure_future(self._accepted_reference(problem))
        # Several episodes of a problem wait for this task. If one of them is cancelled, the task must
        # continue.
        return await asyncio.shield(known)

    async def try_cases(
        self,
        problem: Problem,
        tests: GeneratedTests,
        program: str | None,
        truth: Judgement | None,
        *,
        even_if_invalid: bool = False,
    ) -> VerifierTrial:
        """Try cases on the reference, then on the program. ``truth``: the verdict of the real tests.
        ``even_if_invalid``: try the program even if the reference fails the cases."""
        reference = await self.reference(problem)
        if reference is None:
            return VerifierTrial(None)
        valid = passes(await self._judge_by_cases(problem, tests, reference))
        if program is None or truth is None or not (valid or (valid is False and even_if_invalid)):
            return VerifierTrial(valid)
        judgement = await self._judge_by_cases(problem, tests, Program(problem.language, program))
        if passes(judgement) is None:
            return VerifierTrial(None)
        if judgement is None:
            return VerifierTrial(valid)
        return VerifierTrial(valid, judgement.accepted, rejects(judgement, truth), judgement)

    async def reject_any(
        self, problem: Problem, tests: GeneratedTests, wrong: Sequence[Program]
    ) -> bool | None:
        """Return whether the cases reject at least one of the programs, which are known to be wrong; None if
        the sandbox failed."""
        unknown = False
        for program in wrong:
            found = await self._judge_by_cases(problem, tests, program)
            if found is not None and rejects(found, None):
                return True
            unknown |= passes(found) is None
        return None if unknown else False

    async def _accepted_reference(self, problem: Problem) -> Program | None:
        for program in problem.references:
            judgement = await self._judge.judge(problem, program)
            if judgement.accepted:
                return program
            if judgement.verdict is Verdict.JUDGE_ERROR:
                del self._references[problem.id]
                return None
        return None

    async def _judge_by_cases(
        self, problem: Problem, tests: GeneratedTests, program: Program
    ) -> Judgement | None:
        """Return the verdict by generated cases alone; None for cases that no program can take as input."""
        generated = replace(problem, tests=tests, scoring=Scoring())
        try:
            return await self._judge.judge(generated, program, stop_at_first_failure=False)
        except UserError:
            return None


def has_verdict(truth: Judgement | None) -> bool:
    """Return whether a program has run, so that cases can be compared with its verdict."""
    return truth is not None and truth.score is not None and truth.verdict not in _NOT_RUN


def passes(found: Judgement | None) -> bool | None:
    """Return whether a program passes generated cases; None if the sandbox failed.

    Whoever wrote the cases answers for them. So a program fails cases that it cannot take (``found`` is
    None), and cases on which the problem's checker fails: the verdict of such cases is not unknown.
    """
    if found is None or found.verdict is not Verdict.JUDGE_ERROR:
        return found is not None and found.accepted
    settled = any(
        is_fault_of_tests(case) or case.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
        for case in found.cases
    )
    return False if settled else None


def rejects(found: Judgement, truth: Judgement | None) -> bool:
    """Return whether a verdict by cases shows that the program is wrong.

    A wrong answer and a crash show it. A limit shows it only if the real tests hit the same limit; otherwise
    huge inputs would reject programs without testing them.
    """
    verdicts = {case.verdict for case in found.cases}
    if verdicts & {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR}:
        return True
    return truth is not None and truth.verdict in _LIMIT_VERDICTS and truth.verdict in verdicts


def diagnosis_correct(trial: VerifierTrial, truth: Judgement, *, discriminates: bool) -> bool:
    """Return whether valid cases agree with the real tests about the program.

    An approval also needs ``discriminates``: the cases reject some program that is known to be wrong, if one
    is known.
    """
    return trial.valid is True and (
        trial.accepts_program and discriminates if truth.accepted else trial.rejects_program
    )
