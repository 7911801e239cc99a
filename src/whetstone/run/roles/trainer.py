"""``whetstone role trainer``: the trainer of a run whose batches come from a flow.

It uses the code of a run in one process (``run/local.py``) with other parts: it requests batches, publishes
weights, and only has an engine while it evaluates.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from whetstone.engine.dry_run import DryRunEngine
from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import LoadedModel
from whetstone.rollout.service.client import FlowClient
from whetstone.run.display import Display
from whetstone.run.local import RunSummary, train
from whetstone.run.parts import RunParts, build_trainer
from whetstone.run.preflight import ranks_cannot_evaluate
from whetstone.run.prepared_run import PreparedRun, preflight_models
from whetstone.run.recipe import Recipe
from whetstone.run.roles.batches import DrainableFlow, RankBroadcastFlow
from whetstone.run.roles.identity import flow_section, resolve_model, run_identity
from whetstone.run.roles.role_addresses import reachable_address, run_token
from whetstone.run.roles.trainer_ranks import own_rank, rank_count, start_other_ranks
from whetstone.run.signals import drain_on_signal
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.trainer import Trainer
from whetstone.weights.offer import Offer
from whetstone.weights.publisher import VersionPublisher
from whetstone.weights.settings import WeightsSection
from whetstone.weights.tcp_server import check_listening

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge


class _WeightPublisher:
    """The ``WeightSink`` of a trainer whose replicas are in other processes.

    parts: returns the weights of this rank. announce: sends an offer to the flow.
    """

    def __init__(
        self,
        publisher: VersionPublisher,
        parts: Callable[[], Iterable[tuple[str, object]]],
        announce: Callable[[Offer], Awaitable[None]],
    ) -> None:
        self._publisher, self._parts, self._announce = publisher, parts, announce
        self.version = -1

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """See WeightSink. The flow announces the weights once replicas can fetch them.

        ``weights`` is not read, because gathering it would create a copy of the whole model on every rank.
        """
        offer = await asyncio.wrap_future(self._publisher.publish(version, self._parts()))
        await self._announce(offer)
        self.version = version


def run_trainer(
    recipe: Recipe, url: str, display: Display, *, model: str | None = None, threads: int = 0
) -> RunSummary:
    """Train to the last step on the batches of the flow at ``url``, from the newest checkpoint.

    model: the name of the model; None is the run's first. threads: used if the recipe sets none.
    Raises RunDrained after a checkpoint if the role was told to stop. Raises UserError as ``train`` does, and
    for an unreachable flow, the flow of another run, a flow without batches, and an unknown model.
    """
    name = resolve_model(recipe.environment.models, model)
    first = own_rank() == 0
    # Only rank 0 of the evaluated model loads benchmarks.
    evaluates = first and name == recipe.environment.models[0]
    runs = preflight_models(recipe, display.log, with_evaluation=evaluates)
    own = runs[name]
    if rank_count(recipe) > 1 and own.measured and own.recipe.evaluation.process != "separate":
        raise ranks_cannot_evaluate(rank_count(recipe))
    role = _TrainerRole(url, runs, name, _weights_section(runs, name), display.log)
    if first:
        # The flow or an occupied port may refuse this trainer, so check both before a model is loaded.
        asyncio.run(role.check())
    arguments = ["--flow", url, "--model", name, *(["--threads", str(threads)] if threads else [])]
    with start_other_ranks(recipe, arguments, display.log):
        return train(
            role.run.recipe,
            display,
            join=role.join,
            threads=threads,
            preflight_run=lambda recipe, log: role.run,
        )


def _weights_section(runs: Mapping[str, PreparedRun], name: str) -> WeightsSection:
    """Return the weight settings of a model. Each further model gets its own folder below the given one."""
    weights = flow_section(runs[name].recipe).weights
    if weights.folder and name != next(iter(runs)):
        return weights.model_copy(update={"folder": f"{weights.folder}/{name}"})
    return weights


@dataclass(frozen=True)
class _TrainerRole:
    """The trainer of one model: its flow, the prepared runs of all models, and its weight settings."""

    url: str
    runs: Mapping[str, PreparedRun]
    name: str
    weights: WeightsSection
    log: Callable[[str], None]

    @property
    def run(self) -> PreparedRun:
        """The prepared run of this trainer's model."""
        return self.runs[self.name]

    async def check(self) -> None:
        """Raise UserError if the weights' address is not available or the flow belongs to another run."""
        if self.weights.by == "tcp":
            check_listening(self.weights.host, self.weights.port, run_token())
        client = FlowClient(self.url, run_identity(self.runs), log=self.log)
        try:
            await client.hello()
        finally:
            await client.close()

    @asynccontextmanager
    async def join(
        self, prepared: PreparedRun, judge: RunJudge, policy: LoadedModel, ranks: Ranks
    ) -> AsyncGenerator[RunParts]:
        """The parts of this trainer; see ``local.Join``."""
        recipe = prepared.recipe
        async with self._open_batches(ranks) as batches:
            trainer = build_trainer(recipe, policy, ranks)
            engine = (
                partial(_dry_run_engine, recipe, policy.model)
                if ranks.size > 1 or evaluates_nothing(prepared)
                else partial(_temporary_engine, recipe, trainer.plain_copy, policy.tokenizer)
            )
            with self._publisher(recipe, trainer, ranks) as publisher:
                sink = _WeightPublisher(publisher, partial(trainer.weights, parts=True), batches.publish)
                yield RunParts(ranks, judge, policy, trainer, batches, sink, engine)
                if len(self.runs) > 1:
                    # Replicas need the weights of all models until the last trainer has finished.
                    await batches.wait_for_other_trainers(recipe.trainer.steps)

    def _publisher(self, recipe: Recipe, trainer: Trainer, ranks: Ranks) -> VersionPublisher:
        return VersionPublisher(
            self.name,
            self.weights,
            dtype=trainer.dtype,
            token=run_token(),
            folder=recipe.run_dir() / "weights",
            reach=partial(reachable_address, self.url),
            # Versions are published from a thread, so its collectives need their own group.
            ranks=ranks.new_group(),
        )

    @asynccontextmanager
    async def _open_batches(self, ranks: Ranks) -> AsyncGenerator[RankBroadcastFlow]:
        """The batches of the model on each rank. Also installs the rank's signal handlers."""
        if not ranks.first:
            # The first rank decides when to drain.
            with drain_on_signal(lambda: None):
                yield RankBroadcastFlow(ranks, None)
            return
        client = FlowClient(self.url, run_identity(self.runs), log=self.log)
        try:
            flow = DrainableFlow(client, self.name, self.run.recipe, self.log)
            with drain_on_signal(flow.drain):
                yield RankBroadcastFlow(ranks, flow)
        finally:
            await client.close()


def evaluates_nothing(prepared: PreparedRun) -> bool:
    """Return whether this process does not evaluate, so that it needs no engine except to check prompts."""
    return prepared.recipe.evaluation.process == "separate" or not prepared.measured


@asynccontextmanager
async def _temporary_engine(
    recipe: Recipe, copy: Callable[[], Any], tokenizer: Any
) -> AsyncGenerator[Engine]:
    """An engine with the current weights, for as long as it is needed."""
    engine = build_engine(recipe.engine, copy, tokenizer)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def _dry_run_engine(recipe: Recipe, model: Any) -> AsyncGenerator[Engine]:
    """An engine that only checks prompts, for a process that needs no other."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    yield DryRunEngine(context, recipe.engine.options.get("max_context"))
