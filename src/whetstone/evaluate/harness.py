"""The rules an evaluation goes by: which part of a reply is the program, and whether it is right."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Literal, Protocol

from whetstone.evaluate.assemble import assemble
from whetstone.evaluate.official.rules import OfficialRules, check_official
from whetstone.judge import AsyncJudge
from whetstone.problem import Problem, Program
from whetstone.recipe import WorkflowSection
from whetstone.verdict import Judgement
from whetstone.workflow.single_turn import ProgramJudge, program_of

HarnessName = Literal["ours", "official"]


class Harness(Protocol):
    """Rules by a name that stands in the manifest."""

    @property
    def name(self) -> str:
        """The name."""
        ...

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """The program to judge for a reply (prefix excluded, thinking included); None when it has none."""
        ...

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        """The verdict on that program; NO_CODE for a blank one."""
        ...


class OurRules:
    """The rules that training goes by too: the workflow's extraction, and the judge as it is.

    A reply that continues the beginning of a program is completed first; see ``evaluate.assemble``.
    """

    name = "ours"

    def __init__(self, judge: ProgramJudge, settings: WorkflowSection) -> None:
        self._judge = judge
        self._settings = settings

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """See Harness."""
        code = program_of(problem, self._settings, reply)
        return None if code is None else assemble(problem, code)

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        """See Harness."""
        return await self._judge.judge(problem, program)


def check_harness(name: HarnessName, problems: Iterable[Problem]) -> None:
    """Raise UserError for problems that cannot be judged by these rules."""
    if name == "official":
        check_official(problems)


@contextmanager
def rules_named(
    name: HarnessName,
    judge: AsyncJudge,
    settings: WorkflowSection,
    minimum_tier: str = "restricted",
) -> Generator[Harness, None, None]:
    """Rules by their name, for problems that were asked as ``settings`` say."""
    if name == "ours":
        yield OurRules(judge, settings)
        return
    with OfficialRules(judge, settings, minimum_tier) as rules:
        yield rules
