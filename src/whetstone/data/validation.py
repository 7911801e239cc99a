"""Are the tests of a problem right? Its references have to be accepted, its wrong programs refused.

The judge that trains and measures also decides here, so a problem that passes is one that training
and evaluation will score as its author meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

from msgspec import Struct

from whetstone.problem import Problem, Program
from whetstone.verdict import Judgement, Verdict

Role = Literal["reference", "wrong"]


class JudgesMany(Protocol):
    """What is needed of a judge: judgements in the order of the pairs."""

    def judge_many(self, pairs: Iterable[tuple[Problem, Program]]) -> Iterable[Judgement]:
        """Judge every pair of a problem and a program."""
        ...


class Finding(Struct, frozen=True):
    """The judgement on one program of a problem, and its number among the programs of its role."""

    problem_id: str
    role: Role
    index: int
    judgement: Judgement

    @property
    def as_meant(self) -> bool:
        """A reference was accepted, or a wrong program got a verdict against it. A judge failure is
        no verdict, so it confirms neither."""
        if self.role == "reference":
            return self.judgement.accepted
        return self.judgement.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)

    @property
    def place(self) -> str:
        """The program as a person finds it in the file: ``references[0]`` or ``wrong[1]``."""
        return f"{'references' if self.role == 'reference' else 'wrong'}[{self.index}]"

    def explain(self) -> str:
        """What is not as meant, in one line; empty when everything is."""
        if self.as_meant:
            return ""
        judgement = self.judgement
        if judgement.verdict is Verdict.JUDGE_ERROR:
            return f"{self.place} could not be judged: {judgement.reason}"
        if self.role == "wrong":
            return f"{self.place} passes every test; add a test that it fails"
        failed = [(n, c) for n, c in enumerate(judgement.cases) if c.verdict is not Verdict.ACCEPTED]
        where = f"case {failed[0][0]}: {failed[0][1].reason}" if failed else judgement.reason
        return f"{self.place} is not accepted: {judgement.verdict.value}, {where}"


def check_problems(problems: Iterable[Problem], judge: JudgesMany) -> Iterator[Finding]:
    """Judge every reference and every wrong program of ``problems``; yield a finding for each, in order."""
    work: list[tuple[Problem, Role, int, Program]] = [
        (problem, role, index, program)
        for problem in problems
        for role, programs in _programs(problem)
        for index, program in enumerate(programs)
    ]
    judgements = judge.judge_many([(problem, program) for problem, _, _, program in work])
    for (problem, role, index, _), judgement in zip(work, judgements, strict=True):
        yield Finding(problem.id, role, index, judgement)


def _programs(problem: Problem) -> tuple[tuple[Role, list[Program]], ...]:
    return ("reference", problem.references), ("wrong", problem.wrong)
