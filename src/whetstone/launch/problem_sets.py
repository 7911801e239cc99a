"""The problems that a run trains and is evaluated on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whetstone.data.builtin import subset
from whetstone.data.card import read_card
from whetstone.data.dataset import SPLITS, is_dataset, load_problems
from whetstone.data.journey import load_journey
from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe
from whetstone.problem import Problem
from whetstone.workflow.prompt import Tokenizer, encoded, prompt_of


@dataclass(frozen=True)
class ProblemSets:
    """The training and held-out problems; of no held-out ones there is an empty list."""

    train: list[Problem]
    heldout: list[Problem]

    def evaluated(self, recipe: Recipe) -> dict[str, list[Problem]]:
        """The problems of each evaluation during the run, by set; they are the same at every step."""
        sets: dict[str, list[Problem]] = {}
        wanted = recipe.evaluation.train_problems
        if wanted == "all":
            sets["train"] = self.train
        elif wanted:
            sets["train"] = subset(self.train, wanted, recipe.evaluation.seed_of(recipe.seed))
        if self.heldout:
            sets["heldout"] = self.heldout
        return sets


def problem_sets(recipe: Recipe, tokenizer: Tokenizer | None, say: Callable[[str], None]) -> ProblemSets:
    """The problems of a recipe. ``tokenizer`` is for ``data.drop_long_prompts``; ``say`` is told of drops.

    Raises UserError when the sets overlap, none is left, or one was not built yet.
    """
    data = recipe.data
    check_built(recipe)
    train = _of_difficulty(load_problems(data.train), recipe)
    heldout = [] if data.heldout is None else load_problems(data.heldout)
    if data.drop_long_prompts:
        train = _short(train, recipe, tokenizer, data.train, say)
        heldout = _short(heldout, recipe, tokenizer, str(data.heldout), say)
    train = subset(train, data.max_problems, recipe.seed)
    shared = {p.id for p in train} & {p.id for p in heldout}
    if shared:
        raise UserError(
            f"`data.train` and `data.heldout` share {len(shared)} problems, {sorted(shared)[0]!r} among "
            "them; held-out problems must not be trained on"
        )
    return ProblemSets(train, heldout)


def built_folder(recipe: Recipe) -> Path:
    """The folder of ``data.train``, which ``data.build`` makes, whichever split of it is named."""
    folder, colon, split = recipe.data.train.rpartition(":")
    return Path(folder if colon and split in SPLITS else recipe.data.train)


def needs_build(recipe: Recipe) -> bool:
    """Whether ``data.build`` has to be run first: its folder is not there."""
    return recipe.data.build is not None and not is_dataset(built_folder(recipe))


def check_built(recipe: Recipe) -> None:
    """Raise UserError where ``data.build`` was not run yet, or another journey made the folder."""
    build = recipe.data.build
    if build is None:
        return
    folder = built_folder(recipe)
    command = f"whetstone data build {build} --out {folder}"
    if needs_build(recipe):
        raise UserError(f"`data.train`: {folder} is not there; {command} makes it")
    card, journey = read_card(folder), load_journey(build)
    made_by = card.journey.name if card and card.journey else None
    if made_by != journey.name:
        by = f"journey `{made_by}`" if made_by else "no journey"
        raise UserError(
            f"`data.build`: {folder} was made by {by}, not by {build} (`{journey.name}`); name another "
            f"folder in `data.train`, or give {command} --replace"
        )


def _of_difficulty(problems: list[Problem], recipe: Recipe) -> list[Problem]:
    data = recipe.data
    if not data.difficulty:
        return problems
    wanted = [p for p in problems if p.meta.get("difficulty") in data.difficulty]
    if not wanted:
        there = sorted({str(p.meta.get("difficulty")) for p in problems})
        raise UserError(
            f"`data.difficulty`: no problem of {data.train} is {' or '.join(data.difficulty)}; "
            f"there are {', '.join(there)}"
        )
    return wanted


def _short(
    problems: list[Problem],
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    name: str,
    say: Callable[[str], None],
) -> list[Problem]:
    """The problems whose prompts are not too long."""
    if tokenizer is None:
        raise UserError(
            "`data.drop_long_prompts` counts tokens before the model is there, and one from scratch has no "
            "tokenizer yet; leave it out, or raise `workflow.max_prompt_tokens`"
        )
    most = recipe.workflow.max_prompt_tokens
    short = [p for p in problems if len(encoded(prompt_of(p, recipe.workflow), tokenizer)) <= most]
    if problems and not short:
        raise UserError(
            f"{name}: every prompt has more than `workflow.max_prompt_tokens` = {most} tokens; raise it"
        )
    if dropped := len(problems) - len(short):
        say(f"{name}: {dropped} of {len(problems)} are left out, their prompts have more than {most} tokens")
    return short
