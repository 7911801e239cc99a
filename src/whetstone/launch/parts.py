"""The parts of a run, joined: judge, model, trainer, engine and flow. Nothing here writes a file.

``joined`` has them all in one process, which samples and learns in turn; ``launch/roles/`` has a trainer
whose flow and replicas are processes of their own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whetstone.engine.engine import Engine, Sleeper
from whetstone.engine.factory import build_engine, require
from whetstone.engine.loading import LoadedModel
from whetstone.flow.flow import Flow
from whetstone.flow.local import LocalFlow
from whetstone.flow.shared_devices import SharedDevices
from whetstone.flow.source import PromptSource
from whetstone.launch.recipe import Recipe
from whetstone.problem import Problem
from whetstone.trainer.checkpoint import Checkpoint
from whetstone.trainer.loop import Server
from whetstone.trainer.lora import adapt
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.trainer import Trainer
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.replies import EngineReplies

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


async def _nothing() -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class Parts:
    """What a rank works with. ``policy`` holds the model that ``trainer`` trains.

    server: who serves its weights to those who sample. serving: an engine with the weights as they are, for
    an evaluation or a check. others: what other roles did meanwhile, for the record of a step.
    """

    ranks: Ranks
    judge: RunJudge
    policy: LoadedModel
    trainer: Trainer
    flow: Flow
    server: Server
    serving: Callable[[], AbstractAsyncContextManager[Engine]]
    others: Callable[[], Awaitable[dict[str, float]]] = _nothing

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint: the trainer's state, the prompts drawn so far."""
        state = self.trainer.state_dict()
        saved.read_into(state, self.ranks)
        self.trainer.load_state_dict(state)
        self.flow.restore(saved.state["flow"])

    async def serve(self) -> None:
        """Have the weights served as they are."""
        if self.server.version != self.trainer.version:
            await self.server.update_weights(self.trainer.weights(), self.trainer.version)

    def decode(self, ids: list[int]) -> str:
        """Token ids as text."""
        return str(self.policy.tokenizer.decode(ids))


def share_of_cores(ranks: Ranks) -> int:
    """How many of this machine's cores are a rank's."""
    return max(1, (os.cpu_count() or 1) // ranks.local_size)


def trainer_of(recipe: Recipe, policy: LoadedModel, ranks: Ranks) -> Trainer:
    """The trainer of a model, with its adapters if it has some. All ``ranks`` do this together."""
    if recipe.trainer.lora is not None:
        adapt(policy.model, recipe.trainer.lora, recipe.seed)
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
    recipe: Recipe, model: Callable[[], Any], tokenizer: Any, *, ranks: int = 1
) -> AsyncGenerator[tuple[Engine, EngineReplies]]:
    """The engine that samples for a run, and its replies; let go of at the end.

    model: makes what it serves. Raises UserError for one that the engine cannot take, and for an engine that
    cannot do what the recipe asks.
    """
    engine = build_engine(recipe.engine, model, tokenizer)
    try:
        require(
            engine,
            recipe.engine,
            repeatable=recipe.deterministic,
            tensors=True,
            full_logprobs=recipe.sampling.top_p < 1 or recipe.sampling.top_k > 0,
            ranks=ranks,
        )
        limit = recipe.workflow.max_prompt_tokens
        yield engine, EngineReplies(engine, tokenizer, recipe.sampling, max_prompt_tokens=limit)
    finally:
        await engine.close()


@asynccontextmanager
async def learner(
    recipe: Recipe, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[tuple[Trainer, Engine, EngineReplies]]:
    """The trainer of a model, the engine that serves it, and its replies.

    Raises UserError for a model that the trainer or the engine cannot take. All ``ranks`` do this together.
    """
    # The trainer comes first: its frozen reference (`kl_coef`) is a copy of the weights as they are now.
    trainer = trainer_of(recipe, policy, ranks)
    # The engine serves a copy: the trainer's weights change while replies may be in flight.
    serving = sampling_engine(recipe, trainer.plain_copy, policy.tokenizer, ranks=ranks.size)
    async with serving as (engine, replies):
        yield trainer, engine, replies


@asynccontextmanager
async def joined(
    recipe: Recipe, train: list[Problem], judge: RunJudge, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[Parts]:
    """Join the parts of a run of one model around a judge, and let go of the engine at the end.

    Raises UserError as ``learner`` does.
    """
    async with learner(recipe, policy, ranks) as (trainer, engine, replies):
        flow: Flow = LocalFlow(
            PromptSource(train, recipe.seed),
            build_workflow(recipe.workflow, judge),
            replies,
            recipe.algorithm,
            prompts_per_step=recipe.trainer.prompts_per_step,
            samples_per_prompt=recipe.trainer.samples_per_prompt,
            seed=recipe.seed,
            max_cases=recipe.judge.max_cases or None,
            crew=ranks,
            together=recipe.deterministic,
        )
        if recipe.engine.placement == "shared" and isinstance(engine, Sleeper):
            flow = SharedDevices(flow, engine)
        yield Parts(ranks, judge, policy, trainer, flow, engine, lambda: nullcontext(engine))
