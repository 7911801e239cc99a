"""Peak memory of a training step by length, attention kernel and activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from benchmarks.device_day.context import SectionContext, free_memory
from benchmarks.device_day.workload import (
    BLOCKS,
    kernel_name,
    large_shape,
    layer_of,
    long_batch,
    new_trainer,
    only_kernel,
    random_model,
    seconds_of,
    usable_kernels,
)
from benchmarks.step_memory import plain_step
from whetstone.engine.memory import peak_bytes
from whetstone.trainer.attention_kernels import KernelCandidate

_GIB = 2**30


def measure_memory(context: SectionContext) -> None:
    """Record the peak of a step for each length, kernel, and with and without activation checkpointing."""
    shape = large_shape(context)
    layer = layer_of(random_model(shape, context.device, context.dtype))
    usable, reasons = usable_kernels(layer)
    for candidate in list(usable):
        with only_kernel(candidate):
            if kernel_name(layer) != candidate.name:
                usable.remove(candidate)
                reasons[candidate.name] = "fails its test on a small row; the log has the reason"
    if reasons:
        context.note(**reasons)
    for tokens in [512, 1024] if context.small else [8192, 32_768]:
        for candidate in usable:
            _measure_packed(context, shape, tokens, candidate)
        _measure(context, shape, tokens, "the model's own", attention="model")
        # Plain matrix products would take minutes for the longest sequence.
        if tokens <= 8192:
            _measure_packed(context, shape, tokens, None)
        _measure_plain(context, shape, tokens)


def _measure_packed(
    context: SectionContext, shape: dict[str, Any], tokens: int, candidate: KernelCandidate | None
) -> None:
    name = BLOCKS if candidate is None else candidate.name
    with nullcontext() if context.device.type == "cpu" else only_kernel(candidate):
        _measure(context, shape, tokens, name, attention="packed")


def _measure(context: SectionContext, shape: dict[str, Any], tokens: int, name: str, attention: str) -> None:
    for checkpointing in (True, False):
        which = {"tokens": tokens, "attention": name, "checkpointing": checkpointing}
        with context.attempt(**which):
            settings = {"attention": attention, "activation_checkpointing": checkpointing}
            context.record(**which, **_step_figures(context, shape, tokens, settings))


def _step_figures(
    context: SectionContext, shape: dict[str, Any], tokens: int, settings: dict[str, Any]
) -> dict[str, float]:
    free_memory()
    model = random_model(shape, context.device, context.dtype)
    trainer = new_trainer(model, tokens, micro_batch_tokens=tokens, **settings)
    batch = long_batch(shape["vocab_size"], tokens)
    return _peak(context.device, lambda: trainer.step(batch))


def _measure_plain(context: SectionContext, shape: dict[str, Any], tokens: int) -> None:
    which = {"tokens": tokens, "attention": "plain Hugging Face", "checkpointing": False}
    with context.attempt(**which):
        free_memory()
        model = random_model(shape, context.device, context.dtype)
        ids = [number % shape["vocab_size"] for number in range(tokens + 1)]
        context.record(**which, **_peak(context.device, lambda: plain_step(model, ids)))


def _peak(device: torch.device, step: Callable[[], object]) -> dict[str, float]:
    """Return the memory before two steps, the peak of both above it, and the seconds of the second."""
    if device.type == "cpu":
        before = peak_bytes()
    else:
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
    # The first step of a kernel may compile it.
    seconds_of(device, step)
    seconds = seconds_of(device, step)
    return {"before, GiB": before / _GIB, "step, GiB": (peak_bytes() - before) / _GIB, "seconds": seconds}
