"""Two models that learn from the same episodes, in this process: two runs, joined by their flow.

Each has its folder, with recipe, metrics, rollouts and checkpoints; the second one's is ``verifier`` below
the first one's. A step of one is never without that of the other: the flow samples when both have asked, and
both go on from the newest checkpoint that both have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from whetstone.engine.loading import LoadedModel
from whetstone.errors import UserError
from whetstone.flow.sampling import GroupSampler
from whetstone.flow.source import PromptSource
from whetstone.flow.together import SharedFlow
from whetstone.launch.ahead import Ahead, look_at_all
from whetstone.launch.display import Beside, Display
from whetstone.launch.local import Join, RunSummary, configure_torch, run_joined
from whetstone.launch.parts import Parts, learner, share_of_cores
from whetstone.launch.recipe import Recipe
from whetstone.launch.run_dir import check_recipe, resume_from
from whetstone.launch.run_lock import locked
from whetstone.problem import Problem
from whetstone.trainer.checkpoint import checkpoint_fault, remove_checkpoints_after
from whetstone.trainer.ranks import Ranks, joined_ranks
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.replies import EngineReplies

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


def train_together(recipe: Recipe, display: Display) -> RunSummary:
    """Run a recipe of two models to its last step; see ``local.train``. The summary is that of the first."""
    with joined_ranks(recipe.model.device, recipe.trainer.wait_s) as ranks:
        if ranks.size > 1:
            raise UserError("two models are trained in one process here; start it without torchrun")
        first, second = look_at_all(recipe, display.say).values()
        folders = [each.recipe.run_dir() for each in (first, second)]
        with locked(folders[0]), locked(folders[1]):
            for each, folder in zip((first, second), folders, strict=True):
                check_recipe(folder, each.recipe)
            checkpoints = _resumed(folders, display)
            configure_torch(first.recipe, share_of_cores(ranks))
            return asyncio.run(_both((first, second), folders, checkpoints, display, ranks))


def _resumed(folders: list[Path], display: Display) -> list[Path | None]:
    """The checkpoints that both go on from: of the newest step that both have, or none.

    What is later is removed: it is made again. Raises UserError where a model has no whole one of that step.
    """
    found = [resume_from(folder, display.say) for folder in folders]
    steps = [_step(checkpoint) for checkpoint in found if checkpoint is not None]
    if len(steps) < len(folders):
        return [None] * len(folders)
    chosen = [folder / "checkpoints" / f"step-{min(steps)}" for folder in folders]
    for folder, checkpoint in zip(folders, chosen, strict=True):
        if (fault := checkpoint_fault(checkpoint)) is not None:
            raise UserError(
                f"{checkpoint} is not whole ({fault}), and the other model has no later one: put it back to "
                f"resume both, or start anew in another folder with out=FOLDER"
            )
        remove_checkpoints_after(folder, min(steps))
    return [*chosen]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-").partition(".")[0])


async def _both(
    aheads: tuple[Ahead, Ahead],
    folders: list[Path],
    checkpoints: list[Path | None],
    display: Display,
    ranks: Ranks,
) -> RunSummary:
    names = aheads[0].recipe.workflow.models
    meeting = _Meeting(aheads[0].recipe, aheads[0].sets.train, len(names))
    try:
        async with asyncio.TaskGroup() as tasks:
            runs = [
                tasks.create_task(
                    run_joined(
                        ahead,
                        folder,
                        checkpoint,
                        None,
                        display if ahead is aheads[0] else Beside(name, display),
                        ranks,
                        meeting.join_as(name),
                    )
                )
                for ahead, folder, checkpoint, name in zip(aheads, folders, checkpoints, names, strict=True)
            ]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return runs[0].result()


class _Meeting:
    """Where the runs of both models find each other: when all are there, they have a flow."""

    def __init__(self, recipe: Recipe, train: list[Problem], size: int) -> None:
        self._recipe, self._train, self._size = recipe, train, size
        self._recipes: dict[str, Recipe] = {}
        self._replies: dict[str, EngineReplies] = {}
        self._judge: RunJudge | None = None
        self._flow: asyncio.Future[SharedFlow] = asyncio.get_running_loop().create_future()

    def join_as(self, name: str) -> Join:
        """How the run of a model joins its parts."""

        @asynccontextmanager
        async def join(
            ahead: Ahead, judge: RunJudge, policy: LoadedModel, ranks: Ranks
        ) -> AsyncGenerator[Parts]:
            async with learner(ahead.recipe, policy, ranks) as (trainer, engine, replies):
                self._recipes[name], self._replies[name] = ahead.recipe, replies
                self._judge = judge if ahead.recipe is self._recipe else self._judge
                if len(self._replies) == self._size:
                    self._flow.set_result(self._made())
                flow = (await self._flow).of(name)
                yield Parts(ranks, judge, policy, trainer, flow, engine, lambda: nullcontext(engine))

        return join

    def _made(self) -> SharedFlow:
        recipe = self._recipe
        assert self._judge is not None
        # In the order of the workflow, not of arrival.
        replies = {name: self._replies[name] for name in recipe.workflow.models}
        sample = GroupSampler(
            build_workflow(recipe.workflow, self._judge),
            replies,
            recipe.trainer.samples_per_prompt,
            recipe.seed,
            recipe.judge.max_cases or None,
            together=recipe.deterministic,
        )
        return SharedFlow(
            PromptSource(self._train, recipe.seed),
            sample,
            replies,
            {name: self._recipes[name].algorithm for name in replies},
            prompts_per_step=recipe.trainer.prompts_per_step,
        )
