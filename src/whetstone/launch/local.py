"""A recipe, run in this process: judge, engine, flow and trainer joined, with exact resume.

The order of a step's files makes a kill harmless: a step's rollouts and metrics are written before
the checkpoint that contains it, and resuming from a checkpoint drops whatever is later than it.
"""

from __future__ import annotations

import asyncio
import copy
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.engine.base import SamplingParams
from whetstone.engine.loading import LoadedModel, load_model, save_model
from whetstone.engine.memory import keep_freed_memory
from whetstone.engine.torch_engine import TorchEngine
from whetstone.evaluate.folder import EvaluationFolder
from whetstone.evaluate.results import Evaluation
from whetstone.flow.base import FlowBatch
from whetstone.flow.local import LocalFlow
from whetstone.flow.source import PromptSource
from whetstone.judge import AsyncJudge
from whetstone.launch.display import Display
from whetstone.launch.evaluation import Measured, evaluate_step, evaluation_plan
from whetstone.launch.problem_sets import evaluation_sets, problem_sets
from whetstone.launch.records import eval_record, train_record
from whetstone.launch.run_dir import check_recipe, locked, write_recipe
from whetstone.launch.separate import SeparateEvaluation
from whetstone.launch.start import start_model
from whetstone.problem import Problem
from whetstone.recipe import Recipe
from whetstone.report.metrics import MetricsWriter, read_metrics
from whetstone.report.rollouts import RolloutWriter, rollouts_from
from whetstone.trainer.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from whetstone.trainer.loop import train_sync
from whetstone.trainer.trainer import Trainer
from whetstone.workflow.single_turn import SingleTurn


@dataclass(frozen=True)
class RunSummary:
    """A finished run: its folder, and its first and last evaluation as flat metrics."""

    folder: Path
    before: dict[str, Any]
    after: dict[str, Any]


def train(recipe: Recipe, display: Display) -> RunSummary:
    """Run a recipe to its last step, from the newest checkpoint in its folder if there is one.

    Raises UserError for bad input before anything is written, and SandboxUnavailable when this
    machine cannot isolate as strictly as ``judge.minimum_tier`` asks.
    """
    sets = problem_sets(recipe)
    folder = recipe.run_dir()
    with locked(folder):
        check_recipe(folder, recipe)
        _configure_torch(recipe)
        return asyncio.run(_Run(recipe, folder, sets, display).go())


def _configure_torch(recipe: Recipe) -> None:
    keep_freed_memory()
    disable_progress_bar()  # ours shows the run; transformers' bars would tear it
    torch.set_num_threads(recipe.model.threads or os.cpu_count() or 1)
    torch.manual_seed(recipe.seed)


class _Run:
    """The parts of one run, and the hooks that the training loop calls."""

    def __init__(
        self, recipe: Recipe, folder: Path, sets: dict[str, list[Problem]], display: Display
    ) -> None:
        self.recipe = recipe
        self.folder = folder
        self.sets = sets
        self.display = display
        self.spec = recipe.algorithm.spec()
        self._separate: SeparateEvaluation | None = None

    async def go(self) -> RunSummary:
        """Start or resume, train, evaluate, and say what came out.

        Nothing is written before the judge serves and the model is loaded.
        """
        judge = AsyncJudge(
            workers=self.recipe.judge.workers,
            minimum_tier=self.recipe.judge.minimum_tier,
            stop_at_first_failure=self.recipe.workflow.reward == "all",
            fork_per_case=self.recipe.judge.fork_per_case,
        )
        async with judge:
            self.judge = judge
            checkpoint = latest_checkpoint(self.folder, on_skip=self.display.say)
            policy = self._policy(checkpoint)
            write_recipe(self.folder, self.recipe)
            with MetricsWriter(self.folder / "metrics.jsonl") as self.metrics:
                self.rollouts = RolloutWriter(self.folder)
                await self._join(policy, checkpoint)
                try:
                    return await self._train(fresh=checkpoint is None)
                finally:
                    await self.engine.close()

    async def _join(self, policy: LoadedModel, checkpoint: Path | None) -> None:
        """Join the parts, and restore them from the checkpoint if there is one."""
        recipe = self.recipe
        self.model, self.tokenizer = policy.model, policy.tokenizer
        self.trainer = Trainer(
            policy.model,
            self.spec,
            recipe.trainer,
            temperature=recipe.sampling.temperature,
            max_tokens=recipe.sampling.max_tokens,
            deterministic=recipe.deterministic,
        )
        self.workflow = SingleTurn(recipe.workflow, policy.tokenizer)
        # The engine serves a copy: the trainer's weights change while replies may be in flight.
        served = copy.deepcopy(policy.model).requires_grad_(False)
        self.engine = TorchEngine(served, policy.tokenizer)
        self.flow = LocalFlow(
            PromptSource(self.sets["train"], recipe.seed),
            self.workflow,
            self.engine,
            self.judge,
            self.spec,
            self._sampling_params(),
            prompts_per_step=recipe.trainer.prompts_per_step,
            samples_per_prompt=recipe.trainer.samples_per_prompt,
            seed=recipe.seed,
            max_cases=recipe.judge.max_cases or None,
        )
        if checkpoint is not None:
            saved = load_checkpoint(checkpoint)
            self.trainer.load_state_dict(saved.trainer_state)
            self.flow.restore(saved.state["flow"])
            await self.engine.update_weights(self.trainer.weights(), self.trainer.version)
        done = self.trainer.version if checkpoint is not None else -1
        dropped = self.metrics.truncate_after(done)
        self.rollouts.truncate_after(done)
        if checkpoint is not None:
            rest = f"; {dropped} later records are made again" if dropped else ""
            self.display.say(f"resuming {self.folder} from step {done}{rest}")

    def _policy(self, checkpoint: Path | None) -> LoadedModel:
        """The model to train. A run with a KL penalty needs its starting weights again to resume."""
        recipe, start = self.recipe, self.folder / "start"
        if checkpoint is None:
            policy = start_model(recipe, self.display)
            if self.spec.kl_coef > 0:
                save_model(policy.model, policy.tokenizer, start)
            return policy
        folder = start if self.spec.kl_coef > 0 else checkpoint
        return load_model(str(folder), dtype=recipe.model.dtype, device=recipe.model.device)

    def _sampling_params(self) -> SamplingParams:
        sampling = self.recipe.sampling
        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop=sampling.stop,
        )

    async def _train(self, *, fresh: bool) -> RunSummary:
        if self.recipe.evaluation.process == "separate":
            return await self._train_beside_evaluation(fresh=fresh)
        evaluated = {r["step"]: r for r in read_metrics(self.metrics.path) if r["kind"] == "eval"}
        before = evaluated.get(0) or await self._evaluate(0)
        await self._steps(fresh=fresh)
        after = evaluated.get(self.trainer.version) or self._evaluated
        return RunSummary(self.folder, before, after)

    async def _train_beside_evaluation(self, *, fresh: bool) -> RunSummary:
        """The same, with another process evaluating the checkpoints; it is waited for at the end only."""
        with SeparateEvaluation(self.folder, self.recipe.evaluation, self.display) as evaluation:
            self._separate = evaluation
            await self._steps(fresh=fresh)
            await evaluation.finish(self.trainer.version)
        return RunSummary(
            self.folder, evaluation.record(0) or {}, evaluation.record(self.trainer.version) or {}
        )

    async def _steps(self, *, fresh: bool) -> None:
        if fresh:
            self._checkpoint(0)
        steps = self.recipe.trainer.steps
        if self.trainer.version < steps:
            self.display.begin("training", steps, done=self.trainer.version)
            await train_sync(self.trainer, self.flow, self.engine, self, steps=steps)

    def phase(self, name: str) -> None:
        """Hook of the loop: show what it is busy with."""
        self.display.phase(name)

    async def stepped(
        self, step: int, drawn: FlowBatch, metrics: dict[str, float], seconds: dict[str, float]
    ) -> None:
        """Hook of the loop: write the step down, evaluate and checkpoint when due."""
        recipe = self.recipe
        self.rollouts.write(step, rollouts_from(step, drawn.sampled, self._decode))
        record = train_record(step, drawn, metrics, seconds)
        self.metrics.write(record)
        self.display.step(record, recipe.trainer.steps)
        last = step == recipe.trainer.steps
        if recipe.evaluation.process == "inline" and recipe.evaluation.due(step, last=last):
            await self._evaluate(step)
            if not last:
                self.display.begin("training", recipe.trainer.steps, done=step)
        if last or step % recipe.trainer.checkpoint_every == 0:
            self._checkpoint(step)

    def _checkpoint(self, step: int) -> None:
        self.display.phase("checkpoint")
        save_checkpoint(
            self.folder,
            step,
            model=self.model,
            tokenizer=self.tokenizer,
            trainer_state=self.trainer.state_dict(),
            state={"flow": self.flow.state()},
            keep=self.recipe.trainer.keep_checkpoints,
        )
        if self._separate is not None:
            self._separate.hold(self.recipe.trainer.steps)

    async def _evaluate(self, step: int) -> dict[str, Any]:
        """Evaluate on both sets and write the record; the same problems and seeds at every step."""
        recipe = self.recipe
        start = time.perf_counter()
        evaluations: dict[str, Evaluation] = {}
        for name, problems in evaluation_sets(recipe, self.sets).items():
            measured = Measured(name, problems, recipe.workflow, evaluation_plan(recipe))
            folder = self.folder / "evaluations" / f"step-{step}-{name}"
            # What a run that was killed here had written is made anew, for its step is, too.
            evaluations[name] = await evaluate_step(
                measured,
                step,
                EvaluationFolder(folder, {}, restart=True),
                engine=self.engine,
                tokenizer=self.tokenizer,
                judge=self.judge,
                display=self.display,
            )
        record = eval_record(step, evaluations, time.perf_counter() - start)
        self.metrics.write(record)
        self._evaluated = record
        return record

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))
