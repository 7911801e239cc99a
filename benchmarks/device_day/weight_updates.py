"""New weights for an engine: from this process between two batches, and as versions while it generates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import torch

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import large_shape, new_trainer, random_batch, random_model, synchronize
from benchmarks.generation import Endless
from whetstone.core.sample import Batch
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Engine, GenerationRequest
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.trainer import Trainer
from whetstone.weights.offer import TCP
from whetstone.weights.publisher import VersionPublisher
from whetstone.weights.replica import WeightReplica, published_tensors
from whetstone.weights.settings import WeightsSection
from whetstone.weights.subscription import EngineUpdater
from whetstone.weights.tcp_client import TcpSource

_UPDATES = 3
_MODEL = "policy"


def measure_updates(context: SectionContext) -> None:
    """Record the updates of an embedded engine."""
    shape = large_shape(context)
    trainer = new_trainer(random_model(shape, context.device, context.dtype), 64)
    served = trainer.plain_copy()
    engine = TorchEngine(served, Endless(), max_context=2048)
    batch = random_batch(shape["vocab_size"], groups=2, replies=4, tokens=64)
    asyncio.run(measure_engine(context, "embedded", engine, served, trainer, batch))


async def measure_engine(
    context: SectionContext, name: str, engine: Engine, served: Any, trainer: Trainer, batch: Batch
) -> None:
    """Record updates from tensors of this process, and from published versions, each after a step.

    served: the model that the engine was built with.
    """
    for _ in range(_UPDATES):
        trainer.step(batch)
        read = _FirstRead(trainer.weights())
        synchronize(context.device)
        began = time.perf_counter()
        await engine.update_weights(read, trainer.version)
        synchronize(context.device)
        ended = time.perf_counter()
        context.record(
            engine=name,
            source="this process",
            **{"update, s": ended - began, "pause, s": _pause(engine, ended - read.began)},
        )
    with VersionPublisher(_MODEL, WeightsSection(), dtype=trainer.dtype) as publisher:
        await _follow(context, name, engine, served, trainer, batch, publisher)


async def _follow(
    context: SectionContext,
    name: str,
    engine: Engine,
    served: Any,
    trainer: Trainer,
    batch: Batch,
    publisher: VersionPublisher,
) -> None:
    """Record a full version and deltas over a loopback connection, as a replica on this machine gets them."""
    in_place = served.device.type == "cpu" and engine.capabilities.in_place
    with torch.no_grad():
        for parameter in served.parameters() if in_place else ():
            # Otherwise the replica has the first version already, and fetches nothing.
            parameter.mul_(0.5)
    tensors = published_tensors(served)
    if not in_place:
        tensors = {key: torch.zeros(tensor.shape, dtype=tensor.dtype) for key, tensor in tensors.items()}
    replica, source, updater = WeightReplica(tensors, _MODEL), None, None
    for _ in range(1 + _UPDATES):
        trainer.step(batch)
        began = time.perf_counter()
        offered = publisher.publish(trainer.version, trainer.weights())
        copied = time.perf_counter()
        offer = await asyncio.wrap_future(offered)
        encoded = time.perf_counter()
        if updater is None:
            source = TcpSource(offer.url.removeprefix(TCP))
            updater = EngineUpdater(engine, replica, source, copies=not in_place)
        async with _generating(engine, 128 if context.small else 1900):
            for step in await updater.update():
                context.record(
                    engine=name,
                    source=f"published, {step.kind}",
                    **{"MB": step.fetched_bytes / 1e6, "changed": step.changed_elements},
                    **{"snapshot, s": copied - began, "encode, s": encoded - copied},
                    **{"fetch and verify, s": step.prepare_s, "pause, s": step.pause_s},
                )
    if source is not None:
        source.close()


class _FirstRead:
    """Weights, and the time at which the first one was read."""

    def __init__(self, weights: Iterable[tuple[str, object]]) -> None:
        self._weights = weights
        self.began = 0.0

    def __iter__(self) -> Iterator[tuple[str, object]]:
        self.began = time.perf_counter()
        yield from self._weights


def _pause(engine: Engine, seconds: float) -> float:
    """Return the pause that a server reports; an embedded engine does nothing else while it is updated."""
    reported: float | None = getattr(engine, "pause_s", None)
    return seconds if reported is None else reported


@asynccontextmanager
async def _generating(engine: Engine, tokens: int) -> AsyncGenerator[None]:
    """A context in which the engine always generates 8 replies of so many tokens."""

    async def generate() -> None:
        while True:
            request = GenerationRequest([1, 2, 3], Sampling(max_tokens=tokens), n=8)
            async for _ in engine.generate(request):
                pass

    task = asyncio.create_task(generate())
    # The first tokens, so that the update meets replies in progress.
    await asyncio.sleep(0.2)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
