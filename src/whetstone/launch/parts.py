"""The parts of a run, joined: judge, model, trainer, engine and flow. Nothing here writes a file."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine, require
from whetstone.engine.loading import LoadedModel
from whetstone.flow.flow import Flow
from whetstone.flow.local import LocalFlow
from whetstone.flow.source import PromptSource
from whetstone.launch.recipe import Recipe
from whetstone.problem import Problem
from whetstone.trainer.checkpoint import Checkpoint
from whetstone.trainer.lora import adapt
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.trainer import Trainer
from whetstone.workflow.episode import Workflow
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.replies import EngineReplies

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


@dataclass(frozen=True)
class Parts:
    """What a rank works with. ``policy`` holds the model that ``trainer`` trains."""

    ranks: Ranks
    judge: RunJudge
    policy: LoadedModel
    trainer: Trainer
    engine: Engine
    workflow: Workflow
    replies: EngineReplies
    flow: Flow

    async def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint: the trainer's state, the prompts drawn so far, the weights served."""
        state = self.trainer.state_dict()
        saved.read_into(state, self.ranks)
        self.trainer.load_state_dict(state)
        self.flow.restore(saved.state["flow"])
        await self.engine.update_weights(self.trainer.weights(), self.trainer.version)

    def decode(self, ids: list[int]) -> str:
        """Token ids as text."""
        return str(self.policy.tokenizer.decode(ids))


def share_of_cores(ranks: Ranks) -> int:
    """How many of this machine's cores are a rank's."""
    return max(1, (os.cpu_count() or 1) // ranks.local_size)


@asynccontextmanager
async def learner(
    recipe: Recipe, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[tuple[Trainer, Engine, EngineReplies]]:
    """The trainer of a model, the engine that serves it, and its replies.

    Raises UserError for a model that the trainer or the engine cannot take. All ``ranks`` do this together.
    """
    if recipe.trainer.lora is not None:
        adapt(policy.model, recipe.trainer.lora, recipe.seed)
    # The trainer comes first: its frozen reference (`kl_coef`) is a copy of the weights as they are now.
    trainer = Trainer(
        policy.model,
        recipe.algorithm,
        recipe.trainer,
        temperature=recipe.sampling.temperature,
        max_tokens=recipe.longest_sample,
        deterministic=recipe.deterministic,
        ranks=ranks,
    )

    # The engine serves a copy: the trainer's weights change while replies may be in flight.
    engine = build_engine(recipe.engine, trainer.plain_copy, policy.tokenizer)
    try:
        require(
            engine,
            recipe.engine,
            repeatable=recipe.deterministic,
            tensors=True,
            full_logprobs=recipe.sampling.top_p < 1 or recipe.sampling.top_k > 0,
            ranks=ranks.size,
        )
        limit = recipe.workflow.max_prompt_tokens
        replies = EngineReplies(engine, policy.tokenizer, recipe.sampling, max_prompt_tokens=limit)
        yield trainer, engine, replies
    finally:
        await engine.close()


@asynccontextmanager
async def joined(
    recipe: Recipe, train: list[Problem], judge: RunJudge, policy: LoadedModel, ranks: Ranks
) -> AsyncGenerator[Parts]:
    """Join the parts of a run of one model around a judge, and let go of the engine at the end.

    Raises UserError as ``learner`` does.
    """
    async with learner(recipe, policy, ranks) as (trainer, engine, replies):
        workflow = build_workflow(recipe.workflow, judge)
        flow = LocalFlow(
            PromptSource(train, recipe.seed),
            workflow,
            replies,
            recipe.algorithm,
            prompts_per_step=recipe.trainer.prompts_per_step,
            samples_per_prompt=recipe.trainer.samples_per_prompt,
            seed=recipe.seed,
            max_cases=recipe.judge.max_cases or None,
            crew=ranks,
            together=recipe.deterministic,
        )
        yield Parts(ranks, judge, policy, trainer, engine, workflow, replies, flow)
