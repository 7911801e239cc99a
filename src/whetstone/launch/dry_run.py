"""The checks of ``--dry-run`` that take longer than a moment: problems, prompts, and the judge.

They need no network and no weights. What could not be checked without these is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from whetstone.engine.on_paper import OnPaper
from whetstone.engine.preview import preview
from whetstone.engine.sources import HubModelUnavailable
from whetstone.errors import UserError
from whetstone.launch.ahead import with_steps
from whetstone.launch.checks import check_judging, check_prompts, check_references
from whetstone.launch.dtype import as_recorded
from whetstone.launch.evaluation import Measured, own_sets
from whetstone.launch.preflight import fault_of, recipes_within
from whetstone.launch.problem_sets import ProblemSets, built_folder, needs_build, problem_sets
from whetstone.launch.recipe import Recipe
from whetstone.launch.run_dir import check_recipe
from whetstone.launch.run_judge import run_judge
from whetstone.launch.start import scratch_tokenizer

Say = Callable[[str], None]


def slow_faults(recipe: Recipe, say: Say) -> list[str]:
    """What would stop the recipe once its problems are read, each fault with its key and the remedy.

    say: told what is not checked, and why.
    """
    found: dict[str, str] = {}
    told: set[str] = set()

    def once(text: str) -> None:
        if text not in told:
            say(text)
        told.add(text)

    for number, (where, each) in enumerate(recipes_within(recipe)):
        partner = recipe.verifier is not None and number > 0
        for fault in _faults(each, once, reads=not partner, first=number == 0):
            found.setdefault(fault, where)
    return [f"{where}{fault}" for fault, where in found.items()]


@dataclass(frozen=True)
class _Known:
    """tokenizer: None where it is not on this machine. context: in tokens; None for no known bound."""

    tokenizer: Any
    context: int | None


def _faults(recipe: Recipe, say: Say, *, reads: bool, first: bool) -> list[str]:
    """reads: whether the recipe has problems of its own to read; a second model has none. first: whether it
    begins with the model that it names; a later stage does not."""
    try:
        known = _model(recipe, say)
        if not reads:
            return []
        if needs_build(recipe):
            say(
                f"not checked: the problems of {built_folder(recipe)}, which is built by {recipe.data.build} "
                "when the run starts"
            )
            return []
        recipe = _with_local_sets(recipe, say)
        short = recipe.data.drop_long_prompts and known.tokenizer is None
        read = recipe if not short else _without(recipe, "data", drop_long_prompts=False)
        sets = problem_sets(read, known.tokenizer, say)
        recipe = with_steps(recipe, len(sets.train))
        if first:
            check_recipe(recipe.run_dir(), as_recorded(recipe))
        measured = own_sets(recipe, sets)
    except UserError as error:
        return [str(error)]
    return asyncio.run(_judged(recipe, known, sets, measured, say))


def _model(recipe: Recipe, say: Say) -> _Known:
    model = recipe.model
    if model.scratch is not None:
        return _Known(scratch_tokenizer(model.scratch, recipe), model.scratch.max_positions)
    assert model.path is not None  # a recipe has exactly one of the two
    try:
        seen = preview(model.path, revision=model.revision, offline=True)
    except HubModelUnavailable:
        say(f"not checked: the prompts, because {model.path} is not on this machine and a run fetches it")
        return _Known(None, None)
    return _Known(seen.tokenizer, seen.context)


def _with_local_sets(recipe: Recipe, say: Say) -> Recipe:
    """The recipe without those of ``evaluation.sets`` that a run fetches."""
    sets = recipe.evaluation.sets
    for entry in sets:
        if entry.data is None:
            say(f"not checked: the problems of {entry.benchmark}, which a run fetches where it has no copy")
    return _without(recipe, "evaluation", sets=tuple(entry for entry in sets if entry.data is not None))


def _without(recipe: Recipe, section: str, **values: Any) -> Recipe:
    changed = getattr(recipe, section).model_copy(update=values)
    return recipe.model_copy(update={section: changed})


async def _judged(
    recipe: Recipe, known: _Known, sets: ProblemSets, measured: list[Measured], say: Say
) -> list[str]:
    if recipe.judge.url:
        say(f"not checked: whether the judge at {recipe.judge.url} answers")
        return []
    engine = OnPaper(known.context, recipe.engine.options.get("max_context"))
    faults: list[str] = []
    try:
        async with run_judge(recipe, recipe.judge.workers) as judge:
            prompts = partial(check_prompts, recipe, engine, known.tokenizer, judge, sets.train, measured)
            if known.tokenizer is not None and (fault := fault_of(prompts)):
                faults.append(fault)
            for problems in (sets.train, *(one.problems for one in measured)):
                faults += await _fault_of(check_judging(judge, problems))
            if not faults:
                faults += await _fault_of(check_references(judge, recipe, sets.train, say))
    except UserError as error:
        faults.append(str(error))
    return faults


async def _fault_of(check: Awaitable[object]) -> list[str]:
    try:
        await check
    except UserError as error:
        return [str(error)]
    return []
