"""The slower checks of ``--dry-run``: problems, prompts, and the judge.

They need no network and no weights. Skipped checks are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.dry_run import DryRunEngine
from whetstone.engine.preview import preview
from whetstone.engine.sources import HubModelUnavailable
from whetstone.run.auto import with_recorded_choices
from whetstone.run.checks import check_judging, check_prompts, check_references
from whetstone.run.evaluation import EvaluationSet, evaluation_sets
from whetstone.run.initial_model import scratch_tokenizer
from whetstone.run.preflight import error_of, recipe_parts
from whetstone.run.prepared_run import with_steps
from whetstone.run.problem_sets import ProblemSets, built_folder, needs_build, problem_sets
from whetstone.run.recipe import Recipe
from whetstone.run.run_dir import check_recipe
from whetstone.run.run_judge import run_judge

Log = Callable[[str], None]


def dry_run_errors(recipe: Recipe, log: Log) -> list[str]:
    """Return what would stop the recipe once its problems are read, each error with key and remedy.

    log: called with each skipped check and the reason.
    """
    errors: dict[str, str] = {}
    logged: set[str] = set()

    def log_once(text: str) -> None:
        if text not in logged:
            log(text)
        logged.add(text)

    for number, (where, each) in enumerate(recipe_parts(recipe)):
        partner = recipe.verifier is not None and number > 0
        for fault in _recipe_errors(each, log_once, reads_problems=not partner, first=number == 0):
            errors.setdefault(fault, where)
    return [f"{where}{fault}" for fault, where in errors.items()]


@dataclass(frozen=True)
class _ModelFacts:
    """tokenizer: None if it is not on this machine. context: in tokens; None if unknown or unlimited."""

    tokenizer: Any
    context: int | None


def _recipe_errors(recipe: Recipe, log: Log, *, reads_problems: bool, first: bool) -> list[str]:
    """reads_problems: whether the recipe has its own problems; a second model has none. first: whether it
    starts with the model that it names; a later stage does not."""
    try:
        model = _preview_model(recipe, log)
        if not reads_problems:
            return []
        if needs_build(recipe):
            log(
                f"not checked: the problems of {built_folder(recipe)}, which {recipe.data.build} "
                "builds when the run starts"
            )
            return []
        recipe = _with_local_sets(recipe, log)
        short = recipe.data.drop_long_prompts and model.tokenizer is None
        read = recipe if not short else _with_values(recipe, "data", drop_long_prompts=False)
        sets = problem_sets(read, model.tokenizer, log)
        recipe = with_steps(recipe, len(sets.train))
        if first:
            check_recipe(recipe.run_dir(), with_recorded_choices(recipe))
        measured = evaluation_sets(recipe, sets)
    except UserError as error:
        return [str(error)]
    return asyncio.run(_judge_errors(recipe, model, sets, measured, log))


def _preview_model(recipe: Recipe, log: Log) -> _ModelFacts:
    model = recipe.model
    if model.scratch is not None:
        # Demonstrations need the problems, which may not be built yet.
        tokenizer = None if needs_build(recipe) else scratch_tokenizer(model.scratch, recipe)
        return _ModelFacts(tokenizer, model.scratch.max_positions)
    # A recipe has exactly one of the two.
    assert model.path is not None
    try:
        seen = preview(model.path, revision=model.revision, offline=True)
    except HubModelUnavailable:
        log(f"not checked: the prompts, because {model.path} is not on this machine; a run downloads it")
        return _ModelFacts(None, None)
    return _ModelFacts(seen.tokenizer, seen.context)


def _with_local_sets(recipe: Recipe, log: Log) -> Recipe:
    """Return the recipe without those ``evaluation.sets`` that a run downloads."""
    sets = recipe.evaluation.sets
    for entry in sets:
        if entry.data is None:
            log(f"not checked: the problems of {entry.benchmark}, which a run downloads if there is no copy")
    return _with_values(recipe, "evaluation", sets=tuple(entry for entry in sets if entry.data is not None))


def _with_values(recipe: Recipe, section: str, **values: Any) -> Recipe:
    changed = getattr(recipe, section).model_copy(update=values)
    return recipe.model_copy(update={section: changed})


async def _judge_errors(
    recipe: Recipe, model: _ModelFacts, sets: ProblemSets, measured: list[EvaluationSet], log: Log
) -> list[str]:
    if recipe.judge.url:
        log(f"not checked: whether the judge at {recipe.judge.url} answers")
        return []
    engine = DryRunEngine(model.context, recipe.engine.options.get("max_context"))
    faults: list[str] = []
    try:
        async with run_judge(recipe, recipe.judge.workers) as judge:
            prompts = partial(check_prompts, recipe, engine, model.tokenizer, sets.train, measured)
            if model.tokenizer is not None and (fault := error_of(prompts)):
                faults.append(fault)
            for problems in (sets.train, *(one.problems for one in measured)):
                faults += await _error_of(check_judging(judge, problems))
            if not faults:
                faults += await _error_of(check_references(judge, recipe, sets.train, log))
    except UserError as error:
        faults.append(str(error))
    return faults


async def _error_of(check: Awaitable[object]) -> list[str]:
    try:
        await check
    except UserError as error:
        return [str(error)]
    return []
