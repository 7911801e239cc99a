"""The same replies for two trainers: flat for ours, padded to a matrix for theirs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whetstone.algorithm.advantage import group_advantages
from whetstone.algorithm.algorithm import Algorithm, LossInputs, objective
from whetstone.algorithm.loss import token_weights

LENGTHS = torch.tensor([5, 1, 7, 3, 6, 2, 9, 4])
REWARDS = torch.tensor([1.0, 0.0, 0.3, 0.0, 1.0, 1.0, 0.0, 0.7], dtype=torch.float64)
GROUPS = [0, 0, 0, 0, 1, 1, 1, 1]
MAX_TOKENS = 9


@dataclass(frozen=True)
class Replies:
    """Log-probs and entropies of all tokens, [T] each, the four policies within reach of each other."""

    new: Tensor
    old: Tensor
    engine: Tensor
    reference: Tensor
    entropies: Tensor

    @property
    def mask(self) -> Tensor:
        """[replies, MAX_TOKENS] bool."""
        return torch.arange(MAX_TOKENS) < LENGTHS[:, None]

    def padded(self, values: Tensor) -> Tensor:
        """[T] values as a matrix, 0 where there is no token."""
        return torch.zeros(len(LENGTHS), MAX_TOKENS, dtype=values.dtype).masked_scatter(self.mask, values)


def replies(seed: int, spread: float = 0.5) -> Replies:
    draw = torch.Generator().manual_seed(seed)
    tokens = int(LENGTHS.sum())
    new = -3 * torch.rand(tokens, generator=draw, dtype=torch.float64) - 0.1
    steps = spread * torch.randn(3, tokens, generator=draw, dtype=torch.float64)
    entropies = torch.rand(tokens, generator=draw, dtype=torch.float64)
    return Replies(new.requires_grad_(), *(new.detach() + step for step in steps), entropies)


def advantages(kind: str = "group_mean") -> Tensor:
    """[replies]."""
    return torch.cat([group_advantages(part, kind)[0] for part in REWARDS.split(4)])


def ours(spec: Algorithm, data: Replies, given: Tensor) -> tuple[float, Tensor]:
    """Our loss for advantages of the replies or of the tokens, and its gradient, padded."""
    if len(given) == len(LENGTHS):
        given = given.repeat_interleave(LENGTHS)
    inputs = LossInputs(
        log_probs=data.new,
        old=data.old,
        engine=data.engine,
        reference=data.reference if spec.needs_reference else None,
        entropies=data.entropies,
        advantages=given,
        weights=token_weights(LENGTHS, spec.aggregation, MAX_TOKENS).repeat_interleave(LENGTHS),
        replies=torch.arange(len(LENGTHS)).repeat_interleave(LENGTHS),
        lengths=LENGTHS,
        whole=True,
    )
    assert spec.prepare(inputs) is None
    loss = (inputs.weights * objective(spec, spec.loss(inputs), inputs, data.entropies).tokens).sum()
    (gradient,) = torch.autograd.grad(loss, data.new)
    return float(loss.detach()), data.padded(gradient)
