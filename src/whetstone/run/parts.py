"""The parts of a run: judge, model, trainer, engine and flow. This module writes no files.

``local_parts`` puts all of them in one process, which samples and trains in turn. ``run/roles/`` has a
trainer whose flow and replicas are separate processes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone.core.problem import Problem
from whetstone.engine.engine import Engine, Sleeper
from whetstone.engine.factory import build_engine, check_capabilities
from whetstone.engine.loading import LoadedModel
from whetstone.engine.settings import SERVERS
from whetstone.environments.environment import Environment
from whetstone.environments.episode import POLICY, ProgramJudge
from whetstone.environments.formats.family import family_of
from whetstone.environments.formats.marks import Marks
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.rollout.local_flow import LocalFlow, SharedDevices
from whetstone.rollout.protocol import Flow
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource
from whetstone.run.initial_model import start_folder
from whetstone.run.recipe import Recipe
from whetstone.run.signals import StopRequest
from whetstone.trainer.checkpoint import Checkpoint
from whetstone.trainer.loop import WeightSink
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.sharding import whole_model
from whetstone.trainer.trainer import Trainer

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge


@dataclass(frozen=True)
class RunParts:
    """The parts of one rank. ``policy`` holds the model that ``trainer`` trains.

    weight_sink: serves the weights for sampling. evaluation_engine: an engine with the current weights, for
    an evaluation or a check. stop: ends the training loop at a signal; None if the flow does so.
    """

    ranks: Ranks
    judge: RunJudge
    policy: LoadedModel
    trainer: Trainer
    flow: Flow
    weight_sink: WeightSink
    evaluation_engine: Callable[[], AbstractAsyncContextManager[Engine]]
    stop: StopRequest | None = None

    def restore(self, saved: Checkpoint) -> None:
        """Resume from a checkpoint: trainer state and drawn prompts."""
        state = self.trainer.state_dict()
        saved.read_into(state, self.ranks)
        self.trainer.load_state_dict(state)
        self.flow.restore(saved.state["flow"])

    async def sync_weights(self) -> None:
        """Serve the current weights."""
        # An update with the same weights would copy the whole model for nothing.
        if self.weight_sink.version != self.trainer.version:
            await self.weight_sink.update_weights(self.trainer.weights(), self.trainer.version)

    def decode(self, ids: list[int]) -> str:
        """Return token ids as text."""
        return str(self.policy.tokenizer.decode(ids))

    @property
    def stray_tokens(self) -> frozenset[int]:
        """The special tokens of the model that have no meaning within a reply."""
        tokenizer = self.policy.tokenizer
        return Marks(family_of(tokenizer), tokenizer).stray_tokens


def cores_per_rank(ranks: Ranks) -> int:
    """Return how many of this machine's cores a rank uses."""
    return max(1, (os.cpu_count() or 1) // ranks.local_size)


def build_trainer(recipe: Recipe, policy: LoadedModel, ranks: Ranks) -> Trainer:
    """Return the trainer of a model, with adapters if configured. All ``ranks`` call this together."""
    if recipe.trainer.lora is not None:
        add_adapters(policy.model, recipe.trainer.lora, recipe.seed)
    return Trainer(
        policy.model,
        recipe.algorithm,
        recipe.trainer,
        temperature=recipe.sampling.temperature,
        max_tokens=recipe.longest_sample,
        deterministic=recipe.deterministic,
        ranks=ranks,
    )


@asynccontextmanager
async def sampling_engine(
    recipe: Recipe, model: Callable[[], Any], tokenizer: Any, *, ranks: Ranks | None = None
) -> AsyncGenerator[tuple[Engine, EngineReplies]]:
    """The sampling engine of a run, and its replies; closed at the end.

    model: creates the model to serve; see ``build_engine``. Raises UserError for a model that the engine does
    not support, and for an engine without a required capability.
    """
    routing = recipe.trainer.routing_replay
    # A cross-entropy is that of the whole vocabulary.
    truncated = recipe.sampling.truncates and not recipe.algorithm.cross_entropy
    engine = build_engine(
        recipe.engine,
        model,
        tokenizer,
        ranks=ranks,
        routing=routing,
        truncated=truncated,
        deterministic=recipe.deterministic,
    )
    try:
        check_capabilities(
            engine,
            recipe.engine,
            repeatable=recipe.deterministic,
            tensors=True,
            truncated=truncated,
            ranks=1 if ranks is None else ranks.size,
            routing=routing,
        )
        limit = recipe.environment.max_prompt_tokens
        yield (
            engine,
            EngineReplies(
                engine,
                tokenizer,
                recipe.sampling,
                max_prompt_tokens=limit,
                routing=routing,
                supports=truncated,
            ),
        )
    finally:
        await engine.close()


@asynccontextmanager
async def _trainer_and_engine(
    recipe: Recipe, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[tuple[Trainer, Engine, EngineReplies]]:
    """The trainer of a model, the engine that serves it, and its replies.

    Raises UserError for a model that the trainer or the engine does not support. All ``ranks`` call this
    together.
    """
    # Build the trainer first: its frozen reference (`kl_coef`) is a copy of the current weights.
    trainer = build_trainer(recipe, policy, ranks)

    def copy() -> Any:
        """Return a copy to serve, because the trainer's weights change while replies may be in flight."""
        if recipe.engine.kind not in SERVERS:
            return trainer.plain_copy()
        # A server has its own copy on the devices. Only one rank of a machine needs the weights for it.
        keep = ranks.rank % ranks.local_size == 0
        return whole_model(policy.model, trainer.dtype, keep=keep, copied=True)

    serving = sampling_engine(recipe, copy, policy.tokenizer, ranks=ranks)
    async with serving as (engine, replies):
        yield trainer, engine, replies


def _local_flow(
    recipe: Recipe,
    train: list[Problem],
    environment: Environment,
    judge: ProgramJudge,
    replies: EngineReplies,
    ranks: Ranks,
) -> LocalFlow:
    """Return the flow of a run in this process."""
    sample = GroupSampler(
        environment,
        judge,
        {POLICY: replies},
        recipe.trainer.samples_per_prompt,
        recipe.seed,
        recipe.judge.max_cases or None,
        batch_turns=recipe.deterministic,
    )
    return LocalFlow(
        PromptSource(train, recipe.seed),
        sample,
        replies,
        recipe.algorithm,
        prompts_per_step=recipe.trainer.prompts_per_step,
        process_group=ranks,
    )


class _StartingWeights:
    """A WeightSink whose engine serves the starting weights, version 0, except while an evaluation uses it.

    The engine serves them when it is made; an evaluation loads the trainer's, and then those in ``folder``,
    which contains the starting weights from the first step on.
    """

    def __init__(self, engine: Engine, trainer: Trainer, folder: Path) -> None:
        self._engine, self._trainer, self._folder = engine, trainer, folder

    @property
    def version(self) -> int:
        """The version of the weights that sample, which is always 0."""
        return self._engine.version

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """Leave the engine as it is."""

    @asynccontextmanager
    async def evaluation_engine(self) -> AsyncGenerator[Engine]:
        """The engine with the trainer's weights; it has the starting ones again at the end."""
        engine, trainer = self._engine, self._trainer
        if trainer.version == 0:
            yield engine
            return
        await engine.update_weights(trainer.weights(), trainer.version)
        try:
            yield engine
        finally:
            await engine.update_weights(self._folder, 0)


@asynccontextmanager
async def local_parts(
    recipe: Recipe, train: list[Problem], judge: RunJudge, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[RunParts]:
    """The parts of a run of one model in this process; the engine is closed at the end.

    Raises UserError for a model that the trainer or the engine does not support.
    """
    async with (
        open_environment(recipe.environment) as environment,
        _trainer_and_engine(recipe, policy, ranks) as (trainer, engine, replies),
    ):
        flow: Flow = _local_flow(recipe, train, environment, judge, replies, ranks)
        if recipe.engine.placement == "shared" and isinstance(engine, Sleeper):
            flow = SharedDevices(flow, engine)
        stop = StopRequest(ranks)
        if recipe.algorithm.samples_with_start:
            start = _StartingWeights(engine, trainer, start_folder(recipe.run_dir()))
            yield RunParts(ranks, judge, policy, trainer, flow, start, start.evaluation_engine, stop)
            return
        yield RunParts(ranks, judge, policy, trainer, flow, engine, lambda: nullcontext(engine), stop)
