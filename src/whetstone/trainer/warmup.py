"""Supervised warm-up of a model from scratch on micro-tasks, before RL has anything to reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from whetstone.data.micro import micro_examples
from whetstone.recipe import WarmupSection
from whetstone.trainer.forward import Forward
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.sft import Example, supervised_step

_RISING_SHARE = 0.1
_MICRO_BATCH_TOKENS = 8192


def warm_up(
    model: PreTrainedModel,
    tokenizer: Any,
    settings: WarmupSection,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train on the seed's micro-task examples, and return each step's loss in nats per token.

    Loss falls on the reply and on the end-of-sequence token put after it. ``tokenizer`` is a Hugging
    Face one. ``on_step`` gets the step's number, from 0, and its loss. The model changes in place
    and stays in evaluation mode.
    """
    examples = micro_examples(settings.steps * settings.batch_size, seed, settings.wrong_share)
    forward = Forward(model.eval(), temperature=1.0)
    optimizer = MasterAdamW(model.named_parameters())
    losses: list[float] = []
    try:
        for step in range(settings.steps):
            start = step * settings.batch_size
            batch = [_encode(tokenizer, *pair) for pair in examples[start : start + settings.batch_size]]
            rate = warmup_rate(settings.lr, step, settings.steps)
            loss = supervised_step(forward, optimizer, batch, lr=rate, micro_batch_tokens=_MICRO_BATCH_TOKENS)
            losses.append(loss)
            if on_step is not None:
                on_step(step, loss)
    finally:
        optimizer.close()
    return losses


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
