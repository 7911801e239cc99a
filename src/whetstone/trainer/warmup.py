"""Supervised warm-up of a model from scratch, before RL has anything to reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel

from whetstone.trainer.settings import WarmupSection
from whetstone.trainer.sft import Example, sft

_RISING_SHARE = 0.1


def warm_up(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[tuple[str, str]],
    settings: WarmupSection,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train on (prompt, reply) texts, and return each step's loss in nats per token.

    ``examples`` are taken in order, ``batch_size`` for each of the ``steps``; ValueError when they are
    too few. Loss falls on the reply and on the end-of-sequence token put after it. ``tokenizer`` is a Hugging
    Face one. ``on_step`` gets the step's number, from 0, and its loss. The model changes in place
    and stays in evaluation mode.
    """
    if len(examples) < settings.steps * settings.batch_size:
        raise ValueError(f"{len(examples)} examples are too few for {settings.steps} steps")
    batches = (
        [_encode(tokenizer, *pair) for pair in examples[start : start + settings.batch_size]]
        for start in range(0, settings.steps * settings.batch_size, settings.batch_size)
    )
    return sft(
        model,
        batches,
        rate=lambda step: warmup_rate(settings.lr, step, settings.steps),
        on_step=on_step,
    )


def warmup_rate(lr: float, step: int, steps: int) -> float:
    """The learning rate of a step: up linearly over the first tenth, then down to 0 along a cosine.

    Falling to nothing matters here: fresh weights take a high rate, and its noise at the end would
    be the policy that RL starts from.
    """
    rising = max(1, round(steps * _RISING_SHARE))
    if step < rising:
        return lr * (step + 1) / rising
    return lr * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def _encode(tokenizer: Any, prompt: str, reply: str) -> Example:
    # Apart, because a rollout continues the prompt's tokens: no token may span the two.
    ids = tokenizer.encode(reply, add_special_tokens=False)
    return tokenizer.encode(prompt, add_special_tokens=False), [*ids, tokenizer.eos_token_id]
