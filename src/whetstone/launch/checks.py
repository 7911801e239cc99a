"""What would stop a run at some later step, found before its folder is touched.

The first files of a run bind its folder to the recipe, so a recipe that cannot run must be refused before:
then the corrected one finds the folder as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from whetstone.engine.engine import Engine
from whetstone.errors import UserError
from whetstone.launch.evaluation import Measured
from whetstone.launch.recipe import Recipe
from whetstone.problem import InteractiveTests, Problem, Program
from whetstone.workflow.episode import Conversation, Workflow
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.prompt import Tokenizer
from whetstone.workflow.replies import EngineReplies

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge

_TRAIN = "`data.train`"


async def check_episodes(
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer,
    judge: RunJudge,
    train: list[Problem],
    measured: Sequence[Measured],
) -> None:
    """Raise UserError when a problem of any set cannot be put to the model, or its programs not be judged.

    Of a benchmark single prompts may be too long: such a reply counts as not right.
    """
    check_prompts(recipe, engine, tokenizer, judge, train, measured)
    await check_judging(judge, train)
    for one in measured:
        await check_judging(judge, one.problems)


def check_prompts(
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer,
    judge: RunJudge,
    train: list[Problem],
    measured: Sequence[Measured],
) -> None:
    """Raise UserError when a problem of any set cannot be put to the model; of ``engine`` only the lengths
    that it takes are asked."""
    limit = recipe.workflow.max_prompt_tokens
    replies = EngineReplies(engine, tokenizer, recipe.sampling, max_prompt_tokens=limit)
    _check_prompts(replies, build_workflow(recipe.workflow, judge), train, _TRAIN, each=True)
    for one in measured:
        most = one.settings.max_prompt_tokens
        replies = EngineReplies(engine, tokenizer, one.plan, max_prompt_tokens=most)
        own = one.name in ("train", "heldout")
        where = f"`data.{one.name}`" if own else f"`evaluation.sets` ({one.name})"
        _check_prompts(replies, build_workflow(one.settings, judge), one.problems, where, each=own)


def _check_prompts(
    replies: EngineReplies, workflow: Workflow, problems: list[Problem], where: str, *, each: bool
) -> None:
    """The chat template, the placeholders, and the length of every prompt with the longest reply to it."""
    refused: list[UserError] = []
    for problem in problems:
        try:
            replies.check(problem, workflow.prompt(problem))
            if isinstance(workflow, Conversation) and where == _TRAIN:
                workflow.check(problem)
        except UserError as error:
            refused.append(error)
    if refused and (each or len(refused) == len(problems)):
        rest = f" ({len(refused)} of the {len(problems)} problems of {where} are refused)"
        raise UserError(f"{refused[0]}{rest if len(refused) > 1 else ''}")


async def check_judging(judge: RunJudge, problems: Iterable[Problem]) -> None:
    """One program is judged for each combination of languages and kind of tests.

    The judge refuses by these and by nothing else of a problem: a language that is not here, or not on this
    tier of isolation, or not one that such tests can call.
    """
    kinds: dict[tuple[str, ...], Problem] = {}
    for problem in problems:
        judges = problem.tests.interactor if isinstance(problem.tests, InteractiveTests) else problem.checker
        language = getattr(judges, "language", "")
        kinds.setdefault((problem.language, type(problem.tests).__name__, language), problem)
    tried = (judge.judge(problem, Program(problem.language, "0")) for problem in kinds.values())
    await asyncio.gather(*tried)


async def check_references(
    judge: RunJudge, recipe: Recipe, train: Sequence[Problem], say: Callable[[str], None]
) -> None:
    """Judge the references of a sample of training problems. Raises UserError when too few are accepted.

    A machine that refuses right programs (packages that are not here, a wrong checker, limits that are too
    tight) would teach the model to avoid them.
    """
    settings = recipe.data.references
    known = [problem for problem in train if problem.references]
    if not settings.sample:
        return None
    if not known:
        return say("no training problem has a reference: that right programs are accepted here is not seen")
    chosen = random.Random(recipe.seed).sample(known, min(settings.sample, len(known)))
    judgements = await asyncio.gather(*(judge.judge(p, p.references[0]) for p in chosen))
    refused = [(p, j) for p, j in zip(chosen, judgements, strict=True) if not j.accepted]
    share = 1 - len(refused) / len(chosen)
    said = f"references: {len(chosen) - len(refused)} of a sample of {len(chosen)} are accepted"
    if share < settings.accepted:
        problem, judgement = refused[0]
        raise UserError(
            f"{said}, fewer than the share `data.references.accepted` = {settings.accepted:g}; of "
            f"{problem.id!r} the verdict is {judgement.verdict.value}{_why(judgement.reason)}. `whetstone "
            f"data validate {recipe.data.train}` finds such problems and drops them"
        )
    say(said)
    return None


def _why(reason: str | None) -> str:
    return f" ({reason.strip().splitlines()[-1]})" if reason and reason.strip() else ""
