"""vLLM on the trainer's device: generation, weight updates, and memory while it sleeps."""

from __future__ import annotations

import asyncio
import time

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.generation_speed import measure_sides
from benchmarks.device_day.sleep import measure_steps_of
from benchmarks.device_day.weight_updates import measure_engine
from benchmarks.device_day.workload import large_shape, new_trainer, random_batch, random_loaded
from benchmarks.generation import whetstone
from whetstone.engine.factory import build_engine
from whetstone.engine.settings import EngineSection

# vLLM's share of the device. The trainer's weights, masters and moments take 28 GB.
_SHARE = "0.35"


def measure_vllm(context: SectionContext) -> None:
    """Record one server's figures; nothing if there is no vLLM."""
    if not context.vllm:
        context.note(outcome="vLLM is not installed; --vllm names an interpreter that has it")
        return
    # A server on a CPU cannot sleep.
    placement = "apart" if context.device.type == "cpu" else "shared"
    arguments = ["--gpu-memory-utilization", _SHARE] if placement == "shared" else []
    options = {"python": context.vllm, "max_context": 2048, "arguments": arguments, "start_s": 240.0}
    measure_server(context, EngineSection(kind="vllm", placement=placement, options=options))


def measure_server(context: SectionContext, settings: EngineSection) -> None:
    """Record the figures of the server that ``settings`` describe."""
    loaded = random_loaded(context, large_shape(context))
    trainer = new_trainer(loaded.model, 64)
    served = trainer.plain_copy().to("cpu")
    began = time.perf_counter()
    engine = build_engine(settings, lambda: served, loaded.tokenizer)
    context.note(**{"start, s": time.perf_counter() - began})
    measure_sides(context, [("vLLM", lambda prompts, each, new: whetstone(engine, prompts, each, new))])

    async def update_and_sleep() -> None:
        try:
            batch = random_batch(1000, groups=2, replies=4, tokens=64)
            with context.attempt(measured="weight updates"):
                await measure_engine(context, "vLLM", engine, served, trainer, batch)
            with context.attempt(measured="sleep"):
                await measure_steps_of(context, "vLLM", engine, trainer, batch)
        finally:
            await engine.close()

    asyncio.run(update_and_sleep())
