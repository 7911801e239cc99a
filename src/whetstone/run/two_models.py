"""Trains two models on the same episodes in this process: two runs with a common flow.

Each run has its own folder with recipe, metrics, rollouts and checkpoints; the second one's is ``verifier``
in the first one's folder. Both make every step together: the flow samples when both have asked for a batch.
Both resume from the newest checkpoint that both have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.run_lock import locked
from whetstone.engine.loading import LoadedModel
from whetstone.environments.environment import Environment
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.rollout.local_flow import LocalFlow
from whetstone.run.display import Display, PartnerDisplay
from whetstone.run.local import Join, RunSummary, configure_torch, train_with_parts
from whetstone.run.parts import RunParts, cores_per_rank, local_flow, trainer_and_engine
from whetstone.run.prepared_run import PreparedRun, preflight_models
from whetstone.run.recipe import Recipe
from whetstone.run.run_dir import check_recipe, find_checkpoint
from whetstone.run.signals import StopRequest
from whetstone.trainer.checkpoint import checkpoint_error, remove_checkpoints_after, saved_steps
from whetstone.trainer.loop import RunDrained
from whetstone.trainer.ranks import Ranks, join_ranks

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge


def train_together(recipe: Recipe, display: Display) -> RunSummary:
    """Run a recipe of two models to its last step; see ``local.train``. Returns the summary of the first
    model."""
    with join_ranks(recipe.model.device, recipe.trainer.wait_s) as ranks:
        if ranks.size > 1:
            raise UserError("two models are trained in one process here; start it without torchrun")
        first, second = preflight_models(recipe, display.log).values()
        folders = [each.recipe.run_dir() for each in (first, second)]
        with locked(folders[0]), locked(folders[1]):
            for each, folder in zip((first, second), folders, strict=True):
                check_recipe(folder, each.recipe)
            checkpoints = common_checkpoints(folders, display.log)
            configure_torch(first.recipe, cores_per_rank(ranks))
            return asyncio.run(_train_both((first, second), folders, checkpoints, display, ranks))


def common_checkpoints(folders: list[Path], log: Callable[[str], None]) -> list[Path | None]:
    """Return the checkpoints of the newest step of which both models have a valid one, or none.

    Later ones are removed, because their steps are repeated. Raises UserError, and removes nothing, if the
    models have checkpoints but no such step.
    """
    found = [find_checkpoint(folder, log) for folder in folders]
    newest = [_step(checkpoint) for checkpoint in found if checkpoint is not None]
    if len(newest) < len(folders):
        return [None] * len(folders)
    faults: list[str] = []
    for step in saved_steps(folders[0]):
        if step > min(newest):
            continue
        chosen = [folder / "checkpoints" / f"step-{step}" for folder in folders]
        bad = [f"{path} ({fault})" for path in chosen if (fault := checkpoint_error(path)) is not None]
        if not bad:
            for fault in faults:
                log(f"{fault} is not a valid checkpoint; both models resume from step {step}")
            for folder in folders:
                remove_checkpoints_after(folder, step)
            return [*chosen]
        faults += bad
    raise UserError(
        f"no step has a valid checkpoint of both models: {', '.join(faults)}. Restore one from a copy to "
        "resume both, or start again in another folder with out=FOLDER"
    )


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-").partition(".")[0])


async def _train_both(
    prepared: tuple[PreparedRun, PreparedRun],
    folders: list[Path],
    checkpoints: list[Path | None],
    display: Display,
    ranks: Ranks,
) -> RunSummary:
    names = prepared[0].recipe.environment.models
    try:
        async with (
            open_environment(prepared[0].recipe.environment) as environment,
            asyncio.TaskGroup() as tasks,
        ):
            builder = _SharedFlowBuilder(prepared[0].recipe, environment, prepared[0].sets.train, len(names))
            runs = [
                tasks.create_task(
                    _or_none_if_drained(
                        train_with_parts(
                            ahead,
                            folder,
                            checkpoint,
                            display if ahead is prepared[0] else PartnerDisplay(name, display),
                            ranks,
                            builder.join_for(name),
                        )
                    )
                )
                for ahead, folder, checkpoint, name in zip(prepared, folders, checkpoints, names, strict=True)
            ]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    summary = runs[0].result()
    if summary is None:
        raise RunDrained
    return summary


async def _or_none_if_drained(training: Awaitable[RunSummary]) -> RunSummary | None:
    """An error would cancel the other model, which has to save its checkpoint, too."""
    try:
        return await training
    except RunDrained:
        return None


class _SharedFlowBuilder:
    """Builds the common flow once the parts of all models exist."""

    def __init__(self, recipe: Recipe, environment: Environment, train: list[Problem], size: int) -> None:
        self._recipe, self._environment = recipe, environment
        self._train, self._size = train, size
        self._recipes: dict[str, Recipe] = {}
        self._replies: dict[str, EngineReplies] = {}
        self._judge: RunJudge | None = None
        self._flow: asyncio.Future[LocalFlow] = asyncio.get_running_loop().create_future()
        self._stop = StopRequest(Ranks())

    def join_for(self, name: str) -> Join:
        """Return the function that joins the parts of one model's run."""

        @asynccontextmanager
        async def join(
            ahead: PreparedRun, judge: RunJudge, policy: LoadedModel, ranks: Ranks
        ) -> AsyncGenerator[RunParts]:
            async with trainer_and_engine(ahead.recipe, policy, ranks) as (trainer, engine, replies):
                self._recipes[name], self._replies[name] = ahead.recipe, replies
                self._judge = judge if ahead.recipe is self._recipe else self._judge
                if len(self._replies) == self._size:
                    self._flow.set_result(self._build())
                flow = (await self._flow).for_model(name)
                evaluation_engine = partial(nullcontext, engine)
                yield RunParts(ranks, judge, policy, trainer, flow, engine, evaluation_engine, self._stop)

        return join

    def _build(self) -> LocalFlow:
        recipe = self._recipe
        assert self._judge is not None
        # The order must not depend on which model was ready first.
        replies = {name: self._replies[name] for name in recipe.environment.models}
        specs = {name: self._recipes[name].algorithm for name in replies}
        return local_flow(recipe, self._train, self._environment, self._judge, replies, specs)
