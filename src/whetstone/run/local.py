"""Trains a recipe in this process with exact resume: alone, or as the trainer of a flow in other processes.

Alone it also samples and judges; ``run/roles/trainer.py`` has the parts of a trainer that gets its batches
from a flow. torchrun starts several such processes, the ranks of one run. Only the first writes files,
evaluates and prints.

The order in which files are written makes a kill harmless. A step's rollouts and metrics are written before
the checkpoint that contains it. Resuming from a checkpoint deletes everything later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.core.errors import UserError
from whetstone.core.run_lock import locked
from whetstone.engine.loading import LoadedModel, load_model
from whetstone.engine.memory import keep_freed_memory, return_freed_memory
from whetstone.report.metrics import MetricsWriter, Record, read_metrics
from whetstone.report.rollouts import RolloutWriter, rollouts_from
from whetstone.report.run_signs import SignWatch
from whetstone.report.sinks import ShownMetrics, check_views
from whetstone.rollout.group_facts import tokens_by_version
from whetstone.rollout.pace import ReplyClock
from whetstone.rollout.protocol import FlowBatch
from whetstone.run.auto import with_choices
from whetstone.run.checks import check_episodes, check_references
from whetstone.run.display import Display
from whetstone.run.evaluation import Evaluator
from whetstone.run.evaluations import drop_evaluations_after, evaluation_records, pending_steps
from whetstone.run.initial_model import initial_model, save_initial_weights, start_folder, with_chat_settings
from whetstone.run.parts import RunParts, cores_per_rank, local_parts
from whetstone.run.prepared_run import PreparedRun, preflight
from whetstone.run.recipe import Recipe
from whetstone.run.records import train_record
from whetstone.run.run_dir import check_recipe, find_checkpoint, write_recipe
from whetstone.run.run_judge import run_judge
from whetstone.run.separate_evaluation import SeparateEvaluation
from whetstone.run.start_record import record_start
from whetstone.trainer.checkpoint import CheckpointSaver, load_checkpoint
from whetstone.trainer.loop import RunDrained, train_steps
from whetstone.trainer.ranks import Ranks, join_ranks
from whetstone.trainer.sharding import whole_model

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge


@dataclass(frozen=True)
class RunSummary:
    """A finished run: its folder, and its first and last evaluation, empty if there is none."""

    folder: Path
    before: Record
    after: Record


Join = Callable[[PreparedRun, "RunJudge", LoadedModel, Ranks], AbstractAsyncContextManager[RunParts]]
"""Joins the parts of a run around a judge and a model."""


def single_process_parts(
    ahead: PreparedRun, judge: RunJudge, policy: LoadedModel, ranks: Ranks
) -> AbstractAsyncContextManager[RunParts]:
    """Return the parts of a run that samples and trains in turn in one process."""
    return local_parts(ahead.recipe, ahead.sets.train, judge, policy, ranks)


def train(
    recipe: Recipe,
    display: Display,
    *,
    join: Join = single_process_parts,
    threads: int = 0,
    preflight_run: Callable[[Recipe, Callable[[str], None]], PreparedRun] = preflight,
) -> RunSummary:
    """Run a recipe without stages to its last step, from the newest checkpoint in its folder.

    threads: of this process, if the recipe sets none. preflight_run: the preflight to run.

    Raises RunDrained after a checkpoint if a signal ended the run. Raises UserError for invalid input before
    anything is written, and SandboxUnavailable if this machine cannot isolate as strictly as
    ``judge.minimum_tier`` requires. Under torchrun every rank calls this; the summary is empty on all ranks
    but the first.
    """
    with join_ranks(recipe.model.device, recipe.trainer.wait_s) as ranks:
        _check_ranks(recipe, ranks)
        recipe = with_choices(recipe, display.log)
        prepared = preflight_run(recipe, display.log)
        folder = recipe.run_dir()
        # All ranks use the same folder, so only the first one takes the lock.
        with locked(folder) if ranks.first else nullcontext():

            def checkpoint_of_run() -> str | None:
                check_recipe(folder, prepared.recipe)
                checkpoint = find_checkpoint(folder, display.log)
                return None if checkpoint is None else str(checkpoint)

            checkpoint = ranks.from_first(checkpoint_of_run, "rank 0 to look into the run's folder")
            configure_torch(recipe, threads or cores_per_rank(ranks))
            from_where = None if checkpoint is None else Path(checkpoint)
            try:
                return asyncio.run(train_with_parts(prepared, folder, from_where, display, ranks, join))
            except RunDrained as drained:
                end = drained
    # Raised only here, after the process group has ended, because draining is no failure of a rank.
    raise end


def _check_ranks(recipe: Recipe, ranks: Ranks) -> None:
    """Raise UserError for what several ranks cannot do: share a batch unequally, or evaluate weights that the
    engine does not serve."""
    if recipe.flow is not None:
        # In a flow, the replicas sample.
        return
    if ranks.size > 1 and recipe.algorithm.samples_with_start and recipe.evaluation.process != "separate":
        raise UserError(
            "`algorithm.sampling_weights: start` keeps the starting weights in the engine of each rank, so "
            "nothing here can evaluate later ones; set `evaluation.process: separate`"
        )
    prompts = recipe.trainer.prompts_per_step
    if prompts % ranks.size:
        more = -(-prompts // ranks.size) * ranks.size
        raise UserError(
            f"`trainer.prompts_per_step` is {prompts}, which {ranks.size} ranks cannot share equally; set it "
            f"to {more}, or start torchrun with a number of processes that divides it"
        )


def configure_torch(recipe: Recipe, threads: int) -> None:
    """Configure torch once for a process of a run. ``threads``: used if the recipe sets none."""
    keep_freed_memory()
    # The bars of transformers would break the progress display.
    disable_progress_bar()
    torch.set_num_threads(recipe.model.threads or threads)
    torch.manual_seed(recipe.seed)


async def train_with_parts(
    prepared: PreparedRun,
    folder: Path,
    checkpoint: Path | None,
    display: Display,
    ranks: Ranks,
    join: Join,
) -> RunSummary:
    """Join the parts, check the episodes, open the files, and train.

    The order matters because every part may refuse the recipe (the judge for isolation, trainer and engine
    for the model, the check for a prompt). Nothing may be written before all have accepted it: the first file
    binds the folder to the recipe.
    """
    recipe, train = prepared.recipe, prepared.sets.train
    check_views(recipe.report)
    workers = recipe.judge.workers or (cores_per_rank(ranks) if ranks.size > 1 else 0)
    async with run_judge(recipe, workers) as judge:
        # Several ranks shard it from host memory, so that a device never holds the whole model.
        device = recipe.model.device if ranks.size == 1 else "cpu"
        if checkpoint is None:
            policy = initial_model(recipe, display, device)
        else:
            # The trainer then loads its weights from the checkpoint's master weights.
            model = start_folder(folder) if _needs_initial_weights(recipe) else checkpoint
            loaded = load_model(str(model), dtype=recipe.model.dtype, device=device)
            policy = with_chat_settings(loaded, recipe.model)
        async with join(prepared, judge, policy, ranks) as parts:
            async with parts.evaluation_engine() as engine:
                await check_episodes(recipe, engine, policy.tokenizer, judge, train, prepared.measured)
            await check_references(judge, recipe, train, display.log)
            if checkpoint is not None:
                parts.restore(load_checkpoint(checkpoint))
            elif _needs_initial_weights(recipe):
                start = whole_model(policy.model, parts.trainer.dtype, keep=ranks.first)
                if start is not None:
                    save_initial_weights(folder, replace(policy, model=start))
            ranks.wait("every rank to find the recipe good")
            if not ranks.first:
                run = _Run(recipe, folder, display, parts, _build_saver(recipe, folder, ranks), None)
                return await run.run(fresh=checkpoint is None)
            write_recipe(folder, recipe)
            record_start(folder, recipe)
            with _open_outputs(prepared, folder, parts, display, resumed=checkpoint is not None) as written:
                run = _Run(recipe, folder, display, parts, _build_saver(recipe, folder, ranks), written)
                return await run.run(fresh=checkpoint is None)


@dataclass(frozen=True)
class _RunOutputs:
    """The outputs of the first rank. ``separate``: the evaluation process, if there is one. ``clock``: for a
    run that samples ahead."""

    metrics: MetricsWriter
    signs: SignWatch
    clock: ReplyClock
    rollouts: RolloutWriter
    evaluator: Evaluator
    separate: SeparateEvaluation | None


@contextmanager
def _open_outputs(
    ahead: PreparedRun,
    folder: Path,
    parts: RunParts,
    display: Display,
    *,
    resumed: bool,
) -> Generator[_RunOutputs]:
    """Open the files of a run, and delete what is later than its checkpoint."""
    recipe = ahead.recipe
    rollouts = RolloutWriter(folder)
    separate_process = recipe.evaluation.process == "separate"
    with ShownMetrics(folder, recipe.report, recipe.name, display.log) as metrics:
        done = parts.trainer.version if resumed else -1
        drop_evaluations_after(folder, done, display.log)
        # Steps after the checkpoint are made again, and would otherwise be recorded twice.
        dropped = metrics.truncate_after(done)
        rollouts.truncate_after(done)
        metrics.show()
        if resumed:
            rest = f"; {dropped} later records are repeated" if dropped else ""
            display.log(f"resuming {folder} from step {done}{rest}")
        evaluator = Evaluator(folder, ahead.measured, parts.judge, display, recipe.judge.minimum_tier)
        gpus = "" if recipe.flow is None else recipe.flow.gpus.evaluation
        process = (
            SeparateEvaluation(folder, recipe.evaluation, display, gpus=gpus)
            if separate_process
            else nullcontext()
        )
        with process as separate:
            watch = SignWatch(read_metrics(metrics.path))
            yield _RunOutputs(metrics, watch, ReplyClock(), rollouts, evaluator, separate)


def _build_saver(recipe: Recipe, folder: Path, ranks: Ranks) -> CheckpointSaver:
    settings = recipe.trainer
    return CheckpointSaver(
        folder,
        keep=settings.keep_checkpoints,
        ranks=ranks,
        also_keep=partial(pending_steps, folder, recipe),
    )


def _needs_initial_weights(recipe: Recipe) -> bool:
    """Return whether the run needs its initial weights later: a KL penalty, adapters, and sampling."""
    algorithm = recipe.algorithm
    return algorithm.needs_reference or algorithm.samples_with_start or recipe.trainer.lora is not None


@dataclass(frozen=True)
class _Run:
    """A run in progress, with the hooks of the training loop. Only the first rank has ``outputs``."""

    recipe: Recipe
    folder: Path
    display: Display
    parts: RunParts
    saver: CheckpointSaver
    outputs: _RunOutputs | None

    async def run(self, *, fresh: bool) -> RunSummary:
        """Train to the last step, evaluate, and return the summary."""
        parts, steps, written = self.parts, self.recipe.trainer.steps, self.outputs
        # The engine may have loaded other weights, such as those of the recipe's path instead of the
        # checkpoint.
        await parts.sync_weights()
        # Later weights must not be recorded as those of step 0.
        starts = parts.trainer.version == 0 and 0 not in evaluation_records(self.folder)
        if starts and written is not None and written.separate is None:
            await self._evaluate(written)
        if fresh:
            self._checkpoint(0)
        else:
            self.saver.newest = parts.trainer.version
        if parts.trainer.version < steps:
            with nullcontext() if parts.stop is None else parts.stop.listening():
                await self._train(steps)
        last = parts.trainer.version
        if written is None:
            parts.ranks.wait("the evaluation of the last step")
            return RunSummary(self.folder, {}, {})
        if written.separate is not None:
            # The evaluations decide which checkpoints to keep, so old ones are removed after the last of
            # them.
            await written.separate.wait_for(last)
            self.saver.prune(last)
        elif last not in evaluation_records(self.folder):
            await self._evaluate(written)
        parts.ranks.wait("the evaluation of the last step")
        evaluated = evaluation_records(self.folder)
        if 0 not in evaluated:
            self.display.log(
                f"{self.folder}: there is no evaluation of step 0 to compare with; `whetstone eval` on the "
                "initial model of the run makes one"
            )
        return RunSummary(self.folder, evaluated.get(0, {}), evaluated.get(last, {}))

    async def _train(self, steps: int) -> None:
        parts = self.parts
        self.display.begin("training", steps, done=parts.trainer.version)
        try:
            await train_steps(parts.trainer, parts.flow, parts.weight_sink, self, steps=steps)
        except RunDrained:
            # A drained run resumes at its last step, not at the last regular checkpoint.
            if parts.trainer.version != self.saver.newest:
                self._checkpoint(parts.trainer.version)
            self.display.log(
                f"{self.folder}: stopped after step {parts.trainer.version} of {steps}, with a checkpoint; "
                "the same command resumes"
            )
            raise

    def on_step_begin(self, version: int) -> None:
        """Hook of the loop: end it if the run was told to stop."""
        if self.parts.stop is not None and self.parts.stop.due():
            raise RunDrained

    def on_phase(self, name: str) -> None:
        """Hook of the loop: show the phase, and return memory that the last phase has freed."""
        return_freed_memory()
        self.display.phase(name)

    async def on_step_end(
        self, step: int, drawn: FlowBatch, metrics: dict[str, float], seconds: dict[str, float]
    ) -> None:
        """Hook of the loop: record the step; evaluate and save a checkpoint when due."""
        settings = self.recipe.trainer
        last = step == settings.steps
        written = self.outputs
        if written is not None:
            written.rollouts.write(step, rollouts_from(step, drawn.sampled, self.parts.decode))
            bound = None if self.recipe.flow is None else self.recipe.flow.staleness
            report = await self.parts.flow.report()
            tokens = self.parts.stray_tokens
            record = train_record(step, drawn, metrics, seconds, report, bound, tokens)
            if bound:
                samples = (sample for group in drawn.sampled for sample in group.samples)
                token_s = written.clock.add(step, time.monotonic(), map(tokens_by_version, samples))
                record["time"] |= {} if token_s is None else {"token_s": token_s}
            signs = written.signs.add(record)
            written.metrics.write(record)
            self.display.on_step(record, settings.steps)
            for sign in signs:
                self.display.log(f"warning: {sign}")
            if written.separate is None and self.recipe.evaluation.due(step, last=last):
                await self._evaluate(written)
                if not last:
                    self.display.begin("training", settings.steps, done=step)
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

    async def _evaluate(self, written: _RunOutputs) -> None:
        """Evaluate the current weights."""
        step, tokenizer = self.parts.trainer.version, self.parts.policy.tokenizer
        async with self.parts.evaluation_engine() as engine:
            written.metrics.write(await written.evaluator.evaluate_engine(step, engine, tokenizer))
