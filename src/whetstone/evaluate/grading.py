"""The rules by which an evaluation judges: those of training, or those of published graders."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Literal

from whetstone.core.optional_packages import load_grader
from whetstone.core.problem import Problem
from whetstone.environments.environment import Environment
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge import AsyncJudge

Grading = Literal["ours", "official"]


def check_grading(name: Grading, problems: Iterable[Problem]) -> None:
    """Raise UserError for problems that these rules do not cover, and for rules that are not installed."""
    if name == "official":
        load_grader(name).check_problems(problems)


@asynccontextmanager
async def environment_by(
    name: Grading,
    judge: AsyncJudge,
    settings: EnvironmentSection,
    minimum_tier: str = "restricted",
) -> AsyncGenerator[Environment]:
    """Open the environment with these rules, for prompts by ``settings``."""
    if name == "ours":
        async with open_environment(settings) as environment:
            yield environment
        return
    with load_grader(name)(judge, settings, minimum_tier) as rules:
        yield rules
