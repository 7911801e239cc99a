"""What would stop a run at some later step, found before its folder is touched.

The first files of a run bind its folder to the recipe, so a recipe that cannot run must be refused before:
then the corrected one finds the folder as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from whetstone.errors import UserError
from whetstone.launch.parts import Parts
from whetstone.problem import InteractiveTests, Problem, Program


async def check_episodes(parts: Parts, sets: dict[str, list[Problem]]) -> None:
    """Raise UserError when a problem of any set cannot be put to the model, or its programs not be judged."""
    for name, problems in sets.items():
        _check_prompts(parts, problems, f"`data.{name}`")
        await _check_judging(parts, problems)


def _check_prompts(parts: Parts, problems: list[Problem], where: str) -> None:
    """The chat template, the placeholders, and the length of every prompt with the longest reply to it."""
    refused: list[UserError] = []
    for problem in problems:
        try:
            parts.replies.check(problem, parts.workflow.prompt(problem))
        except UserError as error:
            refused.append(error)
    if refused:
        rest = f" ({len(refused)} of the {len(problems)} problems of {where} are refused)"
        raise UserError(f"{refused[0]}{rest if len(refused) > 1 else ''}")


async def _check_judging(parts: Parts, problems: Iterable[Problem]) -> None:
    """One program is judged for each combination of languages and kind of tests.

    The judge refuses by these and by nothing else of a problem: a language that is not here, or not on this
    tier of isolation, or not one that such tests can call.
    """
    kinds: dict[tuple[str, ...], Problem] = {}
    for problem in problems:
        judges = problem.tests.interactor if isinstance(problem.tests, InteractiveTests) else problem.checker
        language = getattr(judges, "language", "")
        kinds.setdefault((problem.language, type(problem.tests).__name__, language), problem)
    tried = (parts.judge.judge(problem, Program(problem.language, "0")) for problem in kinds.values())
    await asyncio.gather(*tried)
