"""Checks that find, before a run's folder is written, what would stop the run at a later step.

The first files of a run bind its folder to the recipe. An invalid recipe must be refused before, so that the
corrected one can use the folder.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from whetstone.core.errors import UserError
from whetstone.core.problem import InteractiveTests, NoTests, Problem, Program
from whetstone.data.micro import MICRO_PREFIX, MICRO_PROMPT
from whetstone.engine.engine import Engine
from whetstone.environments.environment import Environment
from whetstone.environments.prompt import Tokenizer
from whetstone.environments.replies import EngineReplies
from whetstone.run.evaluation import EvaluationSet
from whetstone.run.recipe import Recipe

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge

_TRAIN = "`data.train`"


async def check_episodes(
    recipe: Recipe,
    engine: Engine,
    tokenizer: Tokenizer | None,
    judge: RunJudge,
    train: list[Problem],
    measured: Sequence[EvaluationSet],
) -> None:
    """Raise UserError if a problem of any set cannot be presented to the model or its programs cannot be
    judged.

    engine: only its length limits are used. tokenizer: None checks no prompts. Single prompts of a benchmark
    may be too long: such a reply counts as wrong.
    """
    if tokenizer is not None:
        limit = recipe.environment.max_prompt_tokens
        replies = EngineReplies(engine, tokenizer, recipe.sampling, max_prompt_tokens=limit)
        _check_prompts(replies, recipe.environment.build(), train, _TRAIN, strict=True)
        for one in measured:
            most = one.settings.max_prompt_tokens
            replies = EngineReplies(engine, tokenizer, one.plan, max_prompt_tokens=most)
            own = one.name in ("train", "heldout")
            where = f"`data.{one.name}`" if own else f"`evaluation.sets` ({one.name})"
            _check_prompts(replies, one.settings.build(), one.problems, where, strict=own)
    await check_judging(judge, train)
    for one in measured:
        await check_judging(judge, one.problems)


def _check_prompts(
    replies: EngineReplies, environment: Environment, problems: list[Problem], where: str, *, strict: bool
) -> None:
    """Check the chat template, the placeholders, and the length of every prompt with its longest reply."""
    refused: list[UserError] = []
    for problem in problems:
        try:
            prompt = environment.prompt(problem)
            if prompt is not None:
                replies.check(problem, prompt)
            if where == _TRAIN:
                environment.check(problem)
        except UserError as error:
            refused.append(error)
    if refused and (strict or len(refused) == len(problems)):
        rest = f" ({len(refused)} of the {len(problems)} problems of {where} are refused)"
        raise UserError(f"{refused[0]}{rest if len(refused) > 1 else ''}")


async def check_judging(judge: RunJudge, problems: Iterable[Problem]) -> None:
    """Judge one program for each combination of languages, kind of tests, and comparison.

    A judge refuses a problem only because of these: the language is not installed, is not available on this
    isolation tier, or cannot be called by such tests; or the comparison is not installed, or not for such
    tests. A problem without tests is never judged.
    """
    kinds: dict[tuple[object, ...], Problem] = {}
    for problem in problems:
        if isinstance(problem.tests, NoTests):
            continue
        judges = problem.tests.interactor if isinstance(problem.tests, InteractiveTests) else problem.checker
        language = getattr(judges, "language", "")
        compare = (problem.compare.mode, problem.compare.oracle)
        kinds.setdefault((problem.language, type(problem.tests), language, compare), problem)
    # The verdict does not matter: only a refusal raises an error.
    tried = (judge.judge(problem, Program(problem.language, "0")) for problem in kinds.values())
    await asyncio.gather(*tried)


def warmup_note(recipe: Recipe, train: Sequence[Problem]) -> str:
    """Return how the micro-tasks of a warm-up differ from what the run trains; empty if they do not."""
    warmup, environment = recipe.warmup, recipe.environment
    if warmup is None or warmup.writes != "programs":
        return ""
    found: list[str] = []
    if others := sum(not problem.id.startswith("micro/") for problem in train):
        found.append(f"{others} of {len(train)} training problems are no micro-tasks")
    prompt = environment.build().prompt(train[0])
    taught = MICRO_PROMPT.format(statement=train[0].statement) + MICRO_PREFIX
    if prompt is not None and (prompt.chat or prompt.user + prompt.prefix != taught):
        found.append(f"its prompts are {MICRO_PROMPT + MICRO_PREFIX!r}, and those of `environment` are not")
    if environment.extraction != "whole":
        found.append(
            f"its replies are expressions without marks, for `environment.extraction: whole`, not "
            f"`{environment.extraction}`"
        )
    if not found:
        return ""
    return (
        f"note: the warm-up teaches micro-tasks, which this run does not train: {'; '.join(found)}. The "
        "model may begin without any reply that earns a reward. Use the data and environment of the recipe "
        "`tiny`, or let the environment give demonstrations (`warmup.writes: demonstrations`)"
    )


async def check_references(
    judge: RunJudge, recipe: Recipe, train: Sequence[Problem], log: Callable[[str], None]
) -> None:
    """Judge the references of a sample of training problems. Raises UserError if too few are accepted.

    A machine that rejects correct programs (missing packages, a wrong checker, tight limits) would train the
    model to avoid them.
    """
    settings = recipe.data.references
    with_tests = [problem for problem in train if not isinstance(problem.tests, NoTests)]
    with_reference = [problem for problem in with_tests if problem.references]
    if not settings.sample or not with_tests:
        return None
    if not with_reference:
        return log("no training problem has a reference: cannot check that correct programs are accepted")
    # By the seed, so that a repeated start checks the same problems.
    chosen = random.Random(recipe.seed).sample(with_reference, min(settings.sample, len(with_reference)))
    judgements = await asyncio.gather(*(judge.judge(p, p.references[0]) for p in chosen))
    refused = [(p, j) for p, j in zip(chosen, judgements, strict=True) if not j.accepted]
    share = 1 - len(refused) / len(chosen)
    summary = f"references: {len(chosen) - len(refused)} of a sample of {len(chosen)} are accepted"
    if share < settings.accepted:
        problem, judgement = refused[0]
        raise UserError(
            f"{summary}, less than `data.references.accepted` = {settings.accepted:g}; of "
            f"{problem.id!r} the verdict is {judgement.verdict.value}{_last_line(judgement.reason)}. "
            "`whetstone "
            f"data validate {recipe.data.train}` finds such problems and drops them"
        )
    log(summary)
    return None


def _last_line(reason: str | None) -> str:
    return f" ({reason.strip().splitlines()[-1]})" if reason and reason.strip() else ""
