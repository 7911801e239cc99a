"""Runs in stages, such as 16k tokens and then 32k. Each stage is a run that starts from the previous stage's
weights.

Stage k has the folder ``OUT/K-NAME`` with recipe, metrics, checkpoints and report. It starts from the model
of the previous stage's last checkpoint, with a new optimizer and, for a KL penalty, with these weights as its
reference. The last evaluation of a stage is reused as the first of the next one: both are of the same
weights, and replies that would be sampled and judged in the same way are copied. A killed run resumes in its
current stage, exactly as a run without stages does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.engine.settings import ModelSection
from whetstone.evaluate.benchmarks import problems_hash
from whetstone.evaluate.folder import MANIFEST_FILE
from whetstone.evaluate.results import EVALUATION_FILE
from whetstone.judge.settings import JudgeSection
from whetstone.run.auto import with_choices
from whetstone.run.evaluation import EvaluationSet, evaluation_manifest
from whetstone.run.evaluations import evaluation_records
from whetstone.run.prepared_run import preflight, preflight_model
from whetstone.run.recipe import Recipe, stage_recipes
from whetstone.run.run_dir import check_recipe
from whetstone.trainer.checkpoint import checkpoint_error


def check_models(recipe: Recipe) -> None:
    """Raise UserError for a missing model, and for a stage whose lengths exceed its context."""
    for number, stage in enumerate(stage_recipes(recipe)):
        try:
            preflight_model(stage)
        except UserError as error:
            where = f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""
            raise UserError(f"{where}{error}") from None


def remaining_runs(
    recipe: Recipe, log: Callable[[str], None]
) -> Iterator[tuple[Recipe, PreviousStage | None]]:
    """Yield the remaining runs of a recipe: its stages in order, each with the previous one; or the whole
    recipe.

    The caller must finish a run before it asks for the next. Raises UserError for invalid input of any stage
    before the first one starts.
    """
    recipe = with_choices(recipe, log)
    if not recipe.stages:
        yield recipe, None
        return
    if (recipe.run_dir() / "recipe.yaml").exists():
        raise UserError(f"{recipe.run_dir()} holds a run without stages; give another folder with out=FOLDER")
    # A mistake in a later stage must be found before the first one trains.
    prepared = [preflight(stage, log) for stage in stage_recipes(recipe)]
    model, previous = recipe.model, None
    for number, prepared_stage in enumerate(prepared, 1):
        stage = prepared_stage.recipe.model_copy(update={"model": model})
        title = f"stage {number} of {len(prepared)}, {recipe.stages[number - 1].name}"
        if is_finished(stage):
            check_recipe(stage.run_dir(), stage)
            log(f"{title}: is done")
        else:
            log(f"{title}: in {stage.run_dir()}")
            yield stage, previous
        model = _next_model(model, last_checkpoint(stage))
        previous = PreviousStage(stage.run_dir(), stage.trainer.steps, prepared_stage.measured, stage.judge)


def is_finished(recipe: Recipe) -> bool:
    """Return whether the run of a recipe has made and evaluated its last step."""
    done = recipe.trainer.steps in evaluation_records(recipe.run_dir())
    return done and checkpoint_error(last_checkpoint(recipe)) is None


def last_checkpoint(recipe: Recipe) -> Path:
    """Return the checkpoint of a run's last step, which is also a model folder."""
    return recipe.run_dir() / "checkpoints" / f"step-{recipe.trainer.steps}"


def _next_model(model: ModelSection, checkpoint: Path) -> ModelSection:
    return model.model_copy(update={"path": str(checkpoint), "revision": None, "scratch": None})


@dataclass(frozen=True)
class PreviousStage:
    """A finished stage: its folder, its last step, its evaluation sets and its judge."""

    run: Path
    step: int
    measured: Sequence[EvaluationSet]
    judge: JudgeSection


def reuse_evaluation(
    previous: PreviousStage,
    run: Path,
    measured: Sequence[EvaluationSet],
    judge: JudgeSection,
    log: Callable[[str], None],
) -> None:
    """Copy the replies of the last evaluation of ``previous`` to the folder of step 0 of ``run``."""
    # Another judge could give other verdicts.
    if judge != previous.judge:
        return
    earlier = {one.name: one for one in previous.measured}
    reused: list[str] = []
    for one in measured:
        source = previous.run / "evaluations" / f"step-{previous.step}-{one.name}"
        if one.name not in earlier or not same_evaluation(one, earlier[one.name]):
            continue
        if not (source / EVALUATION_FILE).exists():
            continue
        target = run / "evaluations" / f"step-0-{one.name}"
        shutil.rmtree(target, ignore_errors=True)
        # The manifest is written last: without it, a partial copy does not count.
        shutil.copytree(source, target)
        content = evaluation_manifest(one, {"step": 0, "taken_from": str(source)})
        write_file(target / MANIFEST_FILE, [json.dumps(content, indent=1).encode()])
        reused.append(one.name)
    if reused:
        log(
            f"{run}: step 0 on {', '.join(reused)} is copied from {previous.run}: same weights, same settings"
        )


def same_evaluation(one: EvaluationSet, other: EvaluationSet) -> bool:
    """Return whether the same weights get the same results on both: problems, prompts, sampling and
    grading."""

    def facts(measured: EvaluationSet) -> tuple[Any, ...]:
        return measured.settings, measured.plan, measured.grading, problems_hash(measured.problems)

    return facts(one) == facts(other)
