"""The problems that a run trains and is evaluated on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.builtin import subset
from whetstone.data.card import read_card
from whetstone.data.dataset import SPLITS, is_dataset, load_problems
from whetstone.data.pipeline import load_pipeline
from whetstone.environments.prompt import Tokenizer, encode_prompt
from whetstone.run.recipe import Recipe


@dataclass(frozen=True)
class ProblemSets:
    """The training and the held-out problems. ``heldout`` may be empty."""

    train: list[Problem]
    heldout: list[Problem]

    def evaluation_problems(self, recipe: Recipe) -> dict[str, list[Problem]]:
        """Return the problems of each evaluation by set; they are the same at every step."""
        sets: dict[str, list[Problem]] = {}
        wanted = recipe.evaluation.train_problems
        if wanted == "all":
            sets["train"] = self.train
        elif wanted:
            sets["train"] = subset(self.train, wanted, recipe.evaluation.seed_of(recipe.seed))
        if self.heldout:
            sets["heldout"] = self.heldout
        return sets


def problem_sets(recipe: Recipe, tokenizer: Tokenizer | None, log: Callable[[str], None]) -> ProblemSets:
    """Return the problems of a recipe. ``tokenizer`` is for ``data.drop_long_prompts``; ``log`` reports
    drops.

    Raises UserError if the sets overlap, a set is empty, or one was not built yet.
    """
    data = recipe.data
    check_built(recipe)
    train = _with_difficulty(load_problems(data.train), recipe)
    heldout = [] if data.heldout is None else load_problems(data.heldout)
    if data.drop_long_prompts:
        train = _drop_long_prompts(train, recipe, tokenizer, data.train, log)
        heldout = _drop_long_prompts(heldout, recipe, tokenizer, str(data.heldout), log)
    train = subset(train, data.max_problems, recipe.seed)
    # A result on problems that were trained on would look better than the model is.
    shared = {p.id for p in train} & {p.id for p in heldout}
    if shared:
        raise UserError(
            f"`data.train` and `data.heldout` share {len(shared)} problems, {sorted(shared)[0]!r} among "
            "them; held-out problems must not be trained on"
        )
    return ProblemSets(train, heldout)


def built_folder(recipe: Recipe) -> Path:
    """Return the folder of ``data.train`` that ``data.build`` creates, without its split."""
    folder, colon, split = recipe.data.train.rpartition(":")
    return Path(folder if colon and split in SPLITS else recipe.data.train)


def needs_build(recipe: Recipe) -> bool:
    """Return whether ``data.build`` must run first because its folder does not exist."""
    return recipe.data.build is not None and not is_dataset(built_folder(recipe))


def check_built(recipe: Recipe) -> None:
    """Raise UserError if ``data.build`` was not run yet, or another pipeline created the folder."""
    build = recipe.data.build
    if build is None:
        return
    folder = built_folder(recipe)
    command = f"whetstone data build {build} --out {folder}"
    if needs_build(recipe):
        raise UserError(f"`data.train`: {folder} does not exist; {command} creates it")
    card, pipeline = read_card(folder), load_pipeline(build)
    made_by = card.pipeline.name if card and card.pipeline else None
    if made_by != pipeline.name:
        by = f"pipeline `{made_by}`" if made_by else "no pipeline"
        raise UserError(
            f"`data.build`: {folder} was made by {by}, not by {build} (`{pipeline.name}`); name another "
            f"folder in `data.train`, or give {command} --replace"
        )


def _with_difficulty(problems: list[Problem], recipe: Recipe) -> list[Problem]:
    data = recipe.data
    if not data.difficulty:
        return problems
    wanted = [p for p in problems if p.meta.get("difficulty") in data.difficulty]
    if not wanted:
        known = sorted({str(p.meta["difficulty"]) for p in problems if p.meta.get("difficulty")})
        found = f"it has {', '.join(known)}" if known else "none names its difficulty, so remove this key"
        raise UserError(
            f"`data.difficulty`: no problem of {data.train} is {' or '.join(data.difficulty)}; {found}"
        )
    return wanted


def _drop_long_prompts(
    problems: list[Problem],
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    name: str,
    log: Callable[[str], None],
) -> list[Problem]:
    """Return the problems whose prompts are not too long."""
    if tokenizer is None:
        raise UserError(
            "`data.drop_long_prompts` counts tokens before the model is created, and a model from "
            "scratch has "
            "no tokenizer yet; remove it, or raise `environment.max_prompt_tokens`"
        )
    most = recipe.environment.max_prompt_tokens
    environment = recipe.environment.build()
    prompts = [environment.prompt(problem) for problem in problems]
    short = [
        problem
        for problem, prompt in zip(problems, prompts, strict=True)
        if prompt is None or len(encode_prompt(prompt, tokenizer)) <= most
    ]
    if problems and not short:
        raise UserError(
            f"{name}: every prompt has more than `environment.max_prompt_tokens` = {most} tokens; raise it"
        )
    if dropped := len(problems) - len(short):
        log(f"{name}: {dropped} of {len(problems)} are dropped: their prompts have more than {most} tokens")
    return short
