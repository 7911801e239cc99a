"""Where the time of a decoding step goes: host or device, and in which calls."""

from __future__ import annotations

import cProfile
import pstats
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import SMOL, TINY, random_model, seconds_of
from benchmarks.generation import Endless, hugging_face, whetstone
from whetstone.engine.scheduler import Ended, Scheduler
from whetstone.engine.torch_engine import TorchEngine

_PROMPT, _VOCABULARY = 128, 1000
_REPLIES = 16

Side = Callable[[list[list[int]]], int]
"""Generates replies to prompts, and returns their tokens."""

# Calls of the CUDA runtime by kind.
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel")
_COPIES = ("cudaMemcpyAsync",)
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def profile_decoding(context: SectionContext) -> None:
    """Record wall time, device time and calls per step of a model of the shape of SmolLM2-135M."""
    model = random_model(TINY if context.small else SMOL, context.device, context.dtype)
    engine = TorchEngine(model, Endless(), max_context=2048)
    draw = random.Random(0)
    new = 8 if context.small else 32
    sides: dict[str, Side] = {
        "embedded": lambda prompts: whetstone(engine, prompts, _REPLIES, new),
        "Hugging Face": lambda prompts: hugging_face(model, prompts, _REPLIES, new),
    }
    for groups in (1, 2) if context.small else (1, 8):
        prompts = [[draw.randrange(3, _VOCABULARY) for _ in range(_PROMPT)] for _ in range(groups)]
        for name, side in sides.items():
            which = {"engine": name, "replies": groups * _REPLIES}
            with context.attempt(**which):
                side(prompts)
                wall = seconds_of(context.device, partial(side, prompts), rounds=2)
                context.record(**which, **{"ms": 1e3 * wall / new}, **_per_step(context, side, prompts, new))
    _print_calls(engine, [[5] * _PROMPT] * 8, new)


def _per_step(context: SectionContext, side: Side, prompts: list[list[int]], new: int) -> dict[str, float]:
    """Return the device's milliseconds and the calls of the CUDA runtime, divided by the number of steps."""
    if context.device.type != "cuda":
        return {}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
        side(prompts)
        torch.accelerator.synchronize()
    events: list[Any] = list(record.key_averages())

    def count(names: tuple[str, ...]) -> float:
        return sum(event.count for event in events if event.key.startswith(names)) / new

    return {
        "device, ms": sum(event.self_device_time_total for event in events) / 1e3 / new,
        "launches": count(_LAUNCHES),
        "copies": count(_COPIES),
        "waits": count(_WAITS),
    }


def _print_calls(engine: TorchEngine, prompts: list[list[int]], new: int) -> None:
    """Print the functions in which the host spends a step. The output is in the log of the run."""
    profiler = cProfile.Profile()
    step = Scheduler.step

    def profiled(self: Scheduler, version: int) -> Ended:
        with profiler:
            return step(self, version)

    Scheduler.step = profiled
    try:
        whetstone(engine, prompts, _REPLIES, new)
    finally:
        Scheduler.step = step
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(40)
