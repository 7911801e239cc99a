"""Everything about a run that is known, and may be refused, before a model is loaded.

``preflight`` reads it for a run; ``--dry-run`` reads it without a network, and reports what it left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.dry_run import DryRunEngine
from whetstone.engine.preview import Preview, preview
from whetstone.engine.sources import HubModelUnavailable
from whetstone.environments.formats.family import use_chat_settings
from whetstone.run.auto import with_recorded_choices
from whetstone.run.checks import check_episodes, check_references, warmup_note
from whetstone.run.evaluation import EvaluationSet, evaluation_sets
from whetstone.run.initial_model import scratch_tokenizer
from whetstone.run.problem_sets import ProblemSets, built_folder, needs_build, problem_sets
from whetstone.run.recipe import Recipe, check_lengths, model_recipes, recipe_parts
from whetstone.run.run_dir import check_recipe
from whetstone.run.run_judge import run_judge

Log = Callable[[str], None]


@dataclass(frozen=True)
class PreparedRun:
    """A recipe with its number of steps, its problems, and its evaluation sets.

    measured: empty if this process does not evaluate. tokenizer: of ``model.path``; None for a model from
    scratch.
    """

    recipe: Recipe
    sets: ProblemSets
    measured: Sequence[EvaluationSet]
    tokenizer: Any


def preflight(recipe: Recipe, log: Log, *, with_evaluation: bool = True) -> PreparedRun:
    """Read everything that a run needs except the model's weights. Benchmarks are only read
    ``with_evaluation``.

    Raises UserError, with the remedy, for a missing model, set or benchmark, and for replies that exceed the
    model's context.
    """
    preview_of_model = preflight_model(recipe)
    tokenizer = None if preview_of_model is None else preview_of_model.tokenizer
    sets = problem_sets(recipe, tokenizer, log)
    recipe = with_steps(recipe, len(sets.train))
    measured: list[EvaluationSet] = []
    if with_evaluation:
        measured = evaluation_sets(recipe, sets)
        _log_warmup(recipe, sets, log)
    return PreparedRun(recipe, sets, measured, tokenizer)


def _log_warmup(recipe: Recipe, sets: ProblemSets, log: Log) -> None:
    if note := warmup_note(recipe, sets.train):
        log(note)


def preflight_models(recipe: Recipe, log: Log, *, with_evaluation: bool = True) -> dict[str, PreparedRun]:
    """Run the preflight for each model of a run; return the results by model name.

    Problems and evaluation sets belong to the first model only. Raises UserError as ``preflight`` does.
    """
    first = preflight(recipe, log, with_evaluation=with_evaluation)
    prepared: dict[str, PreparedRun] = {}
    for name, each in model_recipes(first.recipe).items():
        if not prepared:
            prepared[name] = first
        else:
            model_preview = preflight_model(each)
            prepared[name] = PreparedRun(
                each, ProblemSets([], []), [], None if model_preview is None else model_preview.tokenizer
            )
    return prepared


def preflight_model(recipe: Recipe) -> Preview | None:
    """Return the tokenizer and the context of ``model.path``; None for a model from scratch.

    Raises UserError for a missing model, and for lengths beyond its context.
    """
    model = recipe.model
    model_preview = None if model.path is None else preview(model.path, revision=model.revision)
    if model_preview is not None:
        use_chat_settings(model_preview.tokenizer, model.format, model.template_arguments)
    check_lengths(
        recipe,
        model.scratch.max_positions if model.scratch else model_preview.context if model_preview else None,
    )
    return model_preview


def with_steps(recipe: Recipe, problems: int) -> Recipe:
    """Return the recipe with its number of steps, if it is given as passes over the training problems."""
    trainer = recipe.trainer
    if not trainer.passes:
        return recipe
    steps = trainer.passes * problems // trainer.prompts_per_step
    if steps == 0:
        raise UserError(
            f"`trainer.passes`: {trainer.passes} over {problems} problems is less than one step of "
            f"`trainer.prompts_per_step` = {trainer.prompts_per_step}"
        )
    return recipe.model_copy(update={"trainer": trainer.model_copy(update={"steps": steps, "passes": 0})})


def dry_run_errors(recipe: Recipe, log: Log) -> list[str]:
    """Return what would stop the recipe once its problems are read, each error with key and remedy.

    log: called with each skipped check and the reason. Nothing needs a network or weights.
    """
    errors: dict[str, str] = {}
    logged: set[str] = set()

    def log_once(text: str) -> None:
        if text not in logged:
            log(text)
        logged.add(text)

    for number, (where, each) in enumerate(recipe_parts(recipe)):
        try:
            _dry_run(each, log_once, first=number == 0, partner=number > 0 and recipe.verifier is not None)
        except UserError as error:
            errors.setdefault(str(error), where)
    return [f"{where}{fault}" for fault, where in errors.items()]


def _dry_run(recipe: Recipe, log: Log, *, first: bool, partner: bool) -> None:
    """first: whether the recipe starts with the model that it names; a later stage does not. partner: a
    second model, which has no problems of its own."""
    tokenizer, context = _local_model(recipe, log)
    if partner:
        return
    if needs_build(recipe):
        built = f"{built_folder(recipe)}, which {recipe.data.build} builds when the run starts"
        log(f"not checked: the problems of {built}")
        return
    for entry in recipe.evaluation.sets:
        if entry.data is None:
            log(f"not checked: the problems of {entry.benchmark}, which a run downloads if there is no copy")
    recipe = _with_values(
        recipe, "evaluation", sets=tuple(entry for entry in recipe.evaluation.sets if entry.data is not None)
    )
    short = recipe.data.drop_long_prompts and tokenizer is not None
    sets = problem_sets(_with_values(recipe, "data", drop_long_prompts=short), tokenizer, log)
    recipe = with_steps(recipe, len(sets.train))
    if first:
        check_recipe(recipe.run_dir(), with_recorded_choices(recipe))
    measured = evaluation_sets(recipe, sets)
    _log_warmup(recipe, sets, log)
    if recipe.judge.url:
        log(f"not checked: whether the judge at {recipe.judge.url} answers")
        return
    engine = DryRunEngine(context, recipe.engine.options.get("max_context"))

    async def judge_some() -> None:
        async with run_judge(recipe, recipe.judge.workers) as judge:
            await check_episodes(recipe, engine, tokenizer, judge, sets.train, measured)
            await check_references(judge, recipe, sets.train, log)

    asyncio.run(judge_some())


def _local_model(recipe: Recipe, log: Log) -> tuple[Any, int | None]:
    """Return the tokenizer, None if it is not on this machine, and the context, None if it is unknown or
    unlimited."""
    model = recipe.model
    if model.scratch is not None:
        # Demonstrations need the problems, which may not be built yet.
        tokenizer = None if needs_build(recipe) else scratch_tokenizer(model.scratch, recipe)
        return tokenizer, model.scratch.max_positions
    # A recipe has exactly one of the two.
    assert model.path is not None
    try:
        seen = preview(model.path, revision=model.revision, offline=True)
    except HubModelUnavailable:
        log(f"not checked: the prompts, because {model.path} is not on this machine; a run downloads it")
        return None, None
    use_chat_settings(seen.tokenizer, model.format, model.template_arguments)
    return seen.tokenizer, seen.context


def _with_values(recipe: Recipe, section: str, **values: Any) -> Recipe:
    changed = getattr(recipe, section).model_copy(update=values)
    return recipe.model_copy(update={section: changed})
