"""Memory over many steps of generation, training and weight update: whether any of it leaks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import torch

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import new_trainer, random_batch, trained_or_random
from benchmarks.generation import Endless
from whetstone.core.sample import Batch
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Engine, GenerationRequest, Sleeper
from whetstone.engine.memory import return_device_memory, return_freed_memory
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.trainer import Trainer

_GIB = 2**30
_STEPS, _SMALL_STEPS = 20, 5
# Before it, memory grows for reasons that do not repeat, such as moments and compiled kernels.
_SETTLED = 3


def measure_sleep(context: SectionContext) -> None:
    """Record the memory of an embedded engine and its trainer."""
    trainer = new_trainer(trained_or_random(context).model, 64)
    engine = TorchEngine(trainer.plain_copy(), Endless(), max_context=2048)
    batch = random_batch(1000, groups=2, replies=4, tokens=64)
    asyncio.run(measure_steps_of(context, "embedded", engine, trainer, batch))


async def measure_steps_of(
    context: SectionContext, name: str, engine: Engine, trainer: Trainer, batch: Batch
) -> None:
    """Record the memory of the device and of this process over many steps. An engine that can sleep sleeps
    while the trainer works."""
    settled: dict[str, float] = {}
    found: dict[str, float] = {}
    for step in range(1, (_SMALL_STEPS if context.small else _STEPS) + 1):
        await _generate(context, engine, step)
        if isinstance(engine, Sleeper):
            await engine.sleep()
            return_device_memory()
        found = {f"{key}, after generation": value for key, value in _device_used(context.device).items()}
        trainer.step(batch)
        await engine.update_weights(trainer.weights(), trainer.version)
        return_device_memory()
        return_freed_memory()
        found |= _memory(context.device)
        if step == _SETTLED:
            settled = found
        context.record(engine=name, step=step, **found)
    context.note(engine=name, **{f"growth, {key}": found[key] - settled[key] for key in found})


async def _generate(context: SectionContext, engine: Engine, step: int) -> None:
    """Generate replies of other lengths in each step."""
    longest = 16 if context.small else 64

    async def group(number: int) -> None:
        params = Sampling(max_tokens=1 + (step * 7 + number * 5) % longest)
        async for _ in engine.generate(GenerationRequest([1 + number] * 32, params, n=8, seed=step)):
            pass

    await asyncio.gather(*(group(number) for number in range(4)))


def _memory(device: torch.device) -> dict[str, float]:
    """Return GiB of tensors, of torch's allocator, of the device with all processes, and of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    host = pages * os.sysconf("SC_PAGE_SIZE") / _GIB
    if device.type == "cpu":
        return {"host, GiB": host}
    return {
        "tensors, GiB": torch.accelerator.memory_allocated() / _GIB,
        "reserved, GiB": torch.accelerator.memory_reserved() / _GIB,
        **_device_used(device),
        "host, GiB": host,
    }


def _device_used(device: torch.device) -> dict[str, float]:
    """Return the GiB of the device that are in use by any process; nothing for a CPU."""
    if device.type == "cpu":
        return {}
    module: Any = torch.get_device_module(device)
    free, total = module.mem_get_info(device)
    return {"device, GiB": (total - free) / _GIB}
