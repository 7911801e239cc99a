"""A recipe, trained in this process, with exact resume: alone, or as the trainer of a flow elsewhere.

Alone it samples and judges, too; ``launch/roles/trainer.py`` has the parts of one that is given its batches.
Under torchrun there are several such processes, the ranks of one run. The first alone writes files, evaluates
and speaks.

The order of a step's files makes a kill harmless: a step's rollouts and metrics are written before
the checkpoint that contains it, and resuming from a checkpoint drops whatever is later than it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.engine.loading import LoadedModel, load_model
from whetstone.engine.memory import keep_freed_memory, return_freed_memory
from whetstone.errors import UserError
from whetstone.flow.flow import FlowBatch
from whetstone.launch.ahead import Ahead, look_ahead
from whetstone.launch.best import best_step, worth_keeping
from whetstone.launch.borders import StageBefore, take_over
from whetstone.launch.checks import check_episodes, check_references
from whetstone.launch.display import Display
from whetstone.launch.dtype import with_dtype
from whetstone.launch.evaluation import Evaluator
from whetstone.launch.evaluations import drop_evaluations_after, recorded
from whetstone.launch.parts import Parts, joined, share_of_cores
from whetstone.launch.pins import kept_model
from whetstone.launch.recipe import Recipe
from whetstone.launch.records import train_record
from whetstone.launch.run_dir import check_recipe, resume_from, write_recipe
from whetstone.launch.run_judge import run_judge
from whetstone.launch.run_lock import locked
from whetstone.launch.separate import SeparateEvaluation
from whetstone.launch.start import keep_start, start_model
from whetstone.report.metrics import MetricsWriter, Record
from whetstone.report.rollouts import RolloutWriter, rollouts_from
from whetstone.report.sinks.shown import ShownMetrics, check_views
from whetstone.trainer.checkpoint import load_checkpoint
from whetstone.trainer.loop import Drained, train_steps
from whetstone.trainer.ranks import Ranks, joined_ranks
from whetstone.trainer.saver import CheckpointSaver
from whetstone.trainer.sharding import whole_model

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


@dataclass(frozen=True)
class RunSummary:
    """A finished run: its folder, and its first and last evaluation, empty where there is none."""

    folder: Path
    before: Record
    after: Record


Join = Callable[[Ahead, "RunJudge", LoadedModel, Ranks], AbstractAsyncContextManager[Parts]]
"""Joins the parts of a run around a judge and a model."""


def alone(
    ahead: Ahead, judge: RunJudge, policy: LoadedModel, ranks: Ranks
) -> AbstractAsyncContextManager[Parts]:
    """The parts of a run that samples and learns in turn, in one process."""
    return joined(ahead.recipe, ahead.sets.train, judge, policy, ranks)


def train(
    recipe: Recipe,
    display: Display,
    before: StageBefore | None = None,
    *,
    join: Join = alone,
    threads: int = 0,
    look: Callable[[Recipe, Callable[[str], None]], Ahead] = look_ahead,
) -> RunSummary:
    """Run a recipe without stages to its last step, from the newest checkpoint in its folder if there is one.

    before: the stage whose last weights are the first of this run. threads: of this process, where the recipe
    says nothing. look: what looks ahead.

    Raises UserError for bad input before anything is written, and SandboxUnavailable when this
    machine cannot isolate as strictly as ``judge.minimum_tier`` asks. Under torchrun, every rank calls this;
    the summary is empty on all but the first.
    """
    with joined_ranks(recipe.model.device, recipe.trainer.wait_s) as ranks:
        _check_ranks(recipe, ranks)
        recipe = with_dtype(recipe, display.say)
        ahead = look(recipe, display.say)
        folder = recipe.run_dir()
        with locked(folder) if ranks.first else nullcontext():

            def found() -> str | None:
                check_recipe(folder, ahead.recipe)
                checkpoint = resume_from(folder, display.say)
                return None if checkpoint is None else str(checkpoint)

            checkpoint = ranks.from_first(found, "rank 0 to look into the run's folder")
            configure_torch(recipe, threads or share_of_cores(ranks))
            from_where = None if checkpoint is None else Path(checkpoint)
            try:
                return asyncio.run(run_joined(ahead, folder, from_where, before, display, ranks, join))
            except Drained as drained:
                end = drained
    # Only here: no rank has failed, and all have taken leave of each other.
    raise end


def _check_ranks(recipe: Recipe, ranks: Ranks) -> None:
    """Raise UserError for a batch that the ranks cannot sample in equal shares."""
    if recipe.flow is not None:
        return  # others sample
    prompts = recipe.trainer.prompts_per_step
    if prompts % ranks.size:
        more = -(-prompts // ranks.size) * ranks.size
        raise UserError(
            f"`trainer.prompts_per_step` is {prompts}, which {ranks.size} ranks cannot share equally; set it "
            f"to {more}, or start torchrun with a number of processes that divides it"
        )


def configure_torch(recipe: Recipe, threads: int) -> None:
    """What every process of a run sets once. ``threads``: where the recipe says nothing."""
    keep_freed_memory()
    disable_progress_bar()  # ours shows the run; transformers' bars would tear it
    torch.set_num_threads(recipe.model.threads or threads)
    torch.manual_seed(recipe.seed)


async def run_joined(
    ahead: Ahead,
    folder: Path,
    checkpoint: Path | None,
    before: StageBefore | None,
    display: Display,
    ranks: Ranks,
    join: Join,
) -> RunSummary:
    """Join the parts, check the episodes, open the files, and go.

    In this order, because every part may refuse the recipe (the judge for this machine's isolation, trainer
    and engine for the model, the check for a prompt), and until all have agreed nothing may be written: the
    first file binds the folder to the recipe, and a corrected one would then be another.
    """
    recipe, train = ahead.recipe, ahead.sets.train
    check_views(recipe.report)
    workers = recipe.judge.workers or (share_of_cores(ranks) if ranks.size > 1 else 0)
    async with run_judge(recipe, workers) as judge:
        policy = _policy(recipe, folder, checkpoint, display)
        async with join(ahead, judge, policy, ranks) as parts:
            async with parts.serving() as engine:
                await check_episodes(recipe, engine, policy.tokenizer, judge, train, ahead.measured)
            await check_references(judge, recipe, train, display.say)
            if checkpoint is not None:
                parts.restore(load_checkpoint(checkpoint))
            elif _needs_start(recipe):
                start = whole_model(policy.model, parts.trainer.dtype, keep=ranks.first)
                if start is not None:
                    keep_start(folder, replace(policy, model=start))
            ranks.wait("every rank to find the recipe good")
            if not ranks.first:
                with _saver(recipe, folder, ranks, None) as saver:
                    run = _Run(recipe, folder, display, parts, saver, None)
                    return await run.go(fresh=checkpoint is None)
            write_recipe(folder, recipe)
            with (
                _written(ahead, folder, parts, display, before, resumed=checkpoint is not None) as written,
                _saver(recipe, folder, ranks, written.separate) as saver,
            ):
                run = _Run(recipe, folder, display, parts, saver, written)
                return await run.go(fresh=checkpoint is None)


@dataclass(frozen=True)
class _Written:
    """What the first rank writes. ``separate``: who evaluates, if not we."""

    metrics: MetricsWriter
    rollouts: RolloutWriter
    evaluator: Evaluator
    separate: SeparateEvaluation | None


@contextmanager
def _written(
    ahead: Ahead, folder: Path, parts: Parts, display: Display, before: StageBefore | None, *, resumed: bool
) -> Generator[_Written]:
    """Open the files of a run, and cut off what is later than its checkpoint: it is made again."""
    recipe = ahead.recipe
    rollouts = RolloutWriter(folder)
    beside = recipe.evaluation.process == "separate"
    with ShownMetrics(folder, recipe.report, recipe.name, display.say) as metrics:
        done = parts.trainer.version if resumed else -1
        drop_evaluations_after(folder, done, display.say)
        if before is not None and not resumed:
            take_over(before, folder, ahead.measured, recipe.judge, display.say)
        dropped = metrics.truncate_after(done)
        rollouts.truncate_after(done)
        metrics.show()
        if resumed:
            rest = f"; {dropped} later records are made again" if dropped else ""
            display.say(f"resuming {folder} from step {done}{rest}")
        evaluator = Evaluator(folder, ahead.measured, parts.judge, display, recipe.judge.minimum_tier)
        gpus = "" if recipe.flow is None else recipe.flow.gpus.evaluation
        process = (
            SeparateEvaluation(folder, recipe.evaluation, display, gpus=gpus) if beside else nullcontext()
        )
        with process as separate:
            yield _Written(metrics, rollouts, evaluator, separate)


def _saver(
    recipe: Recipe, folder: Path, ranks: Ranks, separate: SeparateEvaluation | None
) -> CheckpointSaver:
    """What saves a run's checkpoints. One that another process is to evaluate is linked for it at once."""
    settings = recipe.trainer
    return CheckpointSaver(
        folder,
        keep=settings.keep_checkpoints,
        beside=settings.async_checkpoints,
        ranks=ranks,
        worth=worth_keeping(recipe, lambda: recorded(folder)),
        placed=lambda: None if separate is None else separate.hold(settings.steps),
    )


def _needs_start(recipe: Recipe) -> bool:
    """Whether resuming needs the starting weights: a KL penalty and adapters refer to them for ever."""
    return recipe.algorithm.needs_reference or recipe.trainer.lora is not None


def _policy(recipe: Recipe, folder: Path, checkpoint: Path | None, display: Display) -> LoadedModel:
    """The model to train; a resumed trainer then takes its weights from the checkpoint's masters."""
    if checkpoint is None:
        return start_model(recipe, display)
    model = folder / "start" if _needs_start(recipe) else checkpoint
    return load_model(str(model), dtype=recipe.model.dtype, device=recipe.model.device)


@dataclass(frozen=True)
class _Run:
    """A run on its way, and the hooks of the training loop. ``written`` is the first rank's alone."""

    recipe: Recipe
    folder: Path
    display: Display
    parts: Parts
    saver: CheckpointSaver
    written: _Written | None

    async def go(self, *, fresh: bool) -> RunSummary:
        """Train to the last step, evaluate, and say what came out."""
        parts, steps, written = self.parts, self.recipe.trainer.steps, self.written
        await parts.serve()
        self.display.expect(steps - parts.trainer.version, self._evaluations_left())
        if written is not None and written.separate is None:
            await self._evaluate_start(written)
        if fresh:
            self._checkpoint(0)
        else:
            self.saver.newest = parts.trainer.version
        if parts.trainer.version < steps:
            self.display.begin("training", steps, done=parts.trainer.version)
            try:
                await train_steps(parts.trainer, parts.flow, parts.server, self, steps=steps)
            except Drained:
                if parts.trainer.version != self.saver.newest:
                    self._checkpoint(parts.trainer.version)
                self.saver.finish()
                raise
        self.saver.finish()
        last = parts.trainer.version
        if written is None:
            parts.ranks.wait("the evaluation of the last step")
            return RunSummary(self.folder, {}, {})
        if written.separate is not None:
            await written.separate.finish(last)
        elif last not in recorded(self.folder):
            await self._evaluate(written)
        parts.ranks.wait("the evaluation of the last step")
        evaluated = recorded(self.folder)
        self._tell_best(evaluated)
        if 0 not in evaluated:
            self.display.say(
                f"{self.folder}: there is no evaluation of step 0 to compare with: none is recorded, and its "
                "weights are not kept; `whetstone eval` measures the model that the run began with"
            )
        return RunSummary(self.folder, evaluated.get(0, {}), evaluated.get(last, {}))

    def _evaluations_left(self) -> int:
        """How many evaluations this process has yet to make."""
        if self.written is None or self.written.separate is not None or not self.written.evaluator.measured:
            return 0
        last, done, due = self.recipe.trainer.steps, self.parts.trainer.version, self.recipe.evaluation.due
        steps = {0} | {step for step in range(done + 1, last + 1) if due(step, last=step == last)}
        return len(steps - recorded(self.folder).keys())

    def _tell_best(self, evaluated: dict[int, Record]) -> None:
        name = self.recipe.trainer.keep_best
        step = None if name is None else best_step(evaluated, name)
        if step is not None:
            value, place = evaluated[step][f"eval/{name}"], self.folder / "checkpoints" / f"step-{step}"
            self.display.say(f"best by {name}: {value:.3f} at step {step}, kept in {place}")

    def phase(self, name: str) -> None:
        """Hook of the loop: show what it is busy with, and leave the last phase's memory to it."""
        return_freed_memory()
        self.display.phase(name)

    async def stepped(
        self, step: int, drawn: FlowBatch, metrics: dict[str, float], seconds: dict[str, float]
    ) -> None:
        """Hook of the loop: write the step down, evaluate and checkpoint when due."""
        settings = self.recipe.trainer
        last = step == settings.steps
        written = self.written
        if written is not None:
            written.rollouts.write(step, rollouts_from(step, drawn.sampled, self.parts.decode))
            bound = None if self.recipe.flow is None else self.recipe.flow.staleness
            record = train_record(step, drawn, metrics, seconds | await self.parts.others(), bound)
            written.metrics.write(record)
            self.display.step(record, settings.steps)
            if written.separate is None and self.recipe.evaluation.due(step, last=last):
                await self._evaluate(written)
                if not last:
                    self.display.begin("training", settings.steps, done=step)
        self.saver.look()
        if last or step % settings.checkpoint_every == 0:
            self._checkpoint(step)

    def _checkpoint(self, step: int) -> None:
        self.display.phase("checkpoint")
        self.saver.save(
            step,
            model=self.parts.policy.model,
            tokenizer=self.parts.policy.tokenizer,
            trainer_state=self.parts.trainer.state_dict(),
            state={"flow": self.parts.flow.state()},
            dtype=self.parts.trainer.dtype,
        )

    async def _evaluate_start(self, written: _Written) -> None:
        """Have an evaluation of step 0: a recorded one, or one of the weights of step 0, and no others.

        A run that another process evaluated so far may have none, and be at a later step.
        """
        if 0 in recorded(self.folder):
            return
        if self.parts.trainer.version == 0:
            await self._evaluate(written)
        elif (kept := kept_model(self.folder, 0)) is not None:
            recipe, evaluator = self.recipe, written.evaluator
            written.metrics.write(
                await evaluator.saved(0, kept.folder, recipe.model, recipe.engine, digest=kept.digest)
            )

    async def _evaluate(self, written: _Written) -> None:
        """Evaluate the weights as they are, as the step that they are of."""
        step, tokenizer = self.parts.trainer.version, self.parts.policy.tokenizer
        async with self.parts.serving() as engine:
            written.metrics.write(await written.evaluator.served(step, engine, tokenizer))
