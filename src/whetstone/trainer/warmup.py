"""Supervised warm-up of a model from scratch, before RL has anything to reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from transformers import PreTrainedModel

from whetstone.trainer.forward import Forward
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.settings import WarmupSection

Example = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of its reply. The reply includes the end-of-sequence token if it should be
learned."""


def sft(
    model: PreTrainedModel,
    batches: Iterable[Sequence[Example]],
    *,
    rate: Callable[[int], float],
    weight_decay: float = 0.0,
    grad_clip: float = 1.0,
    micro_batch_tokens: int = 8192,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Make one update per batch by cross-entropy on the reply tokens; return the losses in nats per token.

    ``rate`` returns the learning rate of a step, counted from 0; ``on_step`` gets the step's number and its
    loss. The model's weights change in place.
    """
    forward = Forward(model.eval(), temperature=1.0)
    optimizer = MasterAdamW(model.named_parameters(), weight_decay=weight_decay, grad_clip=grad_clip)
    losses: list[float] = []
    try:
        for step, batch in enumerate(batches):
            loss = supervised_step(
                forward, optimizer, batch, lr=rate(step), micro_batch_tokens=micro_batch_tokens
            )
            losses.append(loss)
            if on_step is not None:
                on_step(step, loss)
    finally:
        optimizer.close()
    return losses


def supervised_step(
    forward: Forward, optimizer: MasterAdamW, batch: Sequence[Example], *, lr: float, micro_batch_tokens: int
) -> float:
    """Make one update on a batch: the mean over all its reply tokens of -log p. Returns that loss.

    Raises ValueError if the batch has no reply tokens.
    """
    tokens = sum(len(reply) for _, reply in batch)
    if tokens == 0:
        raise ValueError("a supervised batch needs at least one reply token")
    total = 0.0
    groups = [PromptReplies(prompt, [reply]) for prompt, reply in batch]
    for micro_batch in forward.pack(groups, micro_batch_tokens):
        for scores in forward.scores(micro_batch):
            loss = -scores.log_probs.sum() / tokens
            loss.backward()
            total += float(loss.detach())
    optimizer.update(lr)
    return total


_RISING_SHARE = 0.1


def warm_up(
    model: PreTrainedModel,
    examples: Sequence[Example],
    settings: WarmupSection,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train on the replies of examples, and return each step's loss in nats per token.

    ``examples`` are used in order, ``batch_size`` for each of the ``steps``; ValueError if they are too few.
    ``on_step`` gets the step's number, from 0, and its loss. The model changes in place and stays in
    evaluation mode.
    """
    if len(examples) < settings.steps * settings.batch_size:
        raise ValueError(f"{len(examples)} examples are too few for {settings.steps} steps")
    batches = (
        examples[start : start + settings.batch_size]
        for start in range(0, settings.steps * settings.batch_size, settings.batch_size)
    )
    return sft(
        model,
        batches,
        rate=lambda step: warmup_rate(settings.lr, step, settings.steps),
        on_step=on_step,
    )


def warmup_rate(lr: float, step: int, steps: int) -> float:
    """Return the learning rate of a step: linear up to the first tenth, then a cosine down to 0.

    Reaching 0 matters: new weights need a high rate, whose noise at the end would be the policy that RL
    starts from.
    """
    rising = max(1, round(steps * _RISING_SHARE))
    if step < rising:
        return lr * (step + 1) / rising
    return lr * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
