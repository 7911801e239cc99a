"""Generation speed of the embedded engine against Hugging Face's ``generate``."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import large_shape, random_model, seconds_of
from benchmarks.generation import Endless, hugging_face, whetstone
from whetstone.engine.torch_engine import TorchEngine

# Tokens of a prompt, and the vocabulary that they are from, which every model here has.
_PROMPT, _VOCABULARY = 128, 1000
_PER_PROMPT = 8

Side = Callable[[list[list[int]], int, int], int]
"""Generates: prompts, replies to each, tokens of a reply → tokens."""


def measure_generation(context: SectionContext) -> None:
    """Record both sides at each batch size, with one model object."""
    model = random_model(large_shape(context), context.device, context.dtype)
    engine = TorchEngine(model, Endless(), max_context=2048)
    sides: list[tuple[str, Side]] = [
        ("embedded", lambda prompts, each, new: whetstone(engine, prompts, each, new)),
        ("Hugging Face", lambda prompts, each, new: hugging_face(model, prompts, each, new)),
    ]
    measure_sides(context, sides)


def measure_sides(context: SectionContext, sides: Sequence[tuple[str, Side]]) -> None:
    """Record the speed of each side at batches of 1, 8, 32 and 256, or of 1 and 16 in the rehearsal."""
    draw = random.Random(0)
    for batch in (1, 16) if context.small else (1, 8, 32, 256):
        each = min(_PER_PROMPT, batch)
        prompts = [[draw.randrange(3, _VOCABULARY) for _ in range(_PROMPT)] for _ in range(batch // each)]
        for name, side in sides:
            with context.attempt(engine=name, batch=batch):
                context.record(engine=name, batch=batch, **_speed(context, side, prompts, each))


def _speed(context: SectionContext, side: Side, prompts: list[list[int]], each: int) -> dict[str, float]:
    new, rounds = (8, 1) if context.small else (128, 2)
    # The first call warms up.
    tokens = side(prompts, each, new)
    seconds = seconds_of(context.device, lambda: side(prompts, each, new), rounds)
    return {"tokens per second": tokens / seconds, "ms per token of a reply": 1e3 * seconds / new}
