"""Archer: one rule for a reply's sure tokens, another for its unsure ones (arXiv 2507.15778).

The ``1 - entropy_quantile`` of a reply's tokens with the highest entropy carry its reasoning: they may move
far. The
others carry knowledge: they are clipped closer, and held to the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from whetstone.algorithm.algorithm import Aggregation, Coefficient, Losses, LossInputs
from whetstone.algorithm.loss import probability_ratio
from whetstone.algorithm.presets.grpo import GRPO, clipped_surrogate
from whetstone.core.settings import NonNegative, Share

if TYPE_CHECKING:
    from torch import Tensor


class Archer(GRPO):
    """DAPO's token mean with bounds and a KL penalty by class of token, and dual clip.

    entropy_quantile: a token is of knowledge when its entropy is at most this quantile of its reply's.
    clip_low, clip_high, kl_coef: of knowledge. reasoning_clip_low, reasoning_clip_high, reasoning_kl_coef: of
    reasoning. Each penalty is the mean over the tokens of its class, whatever ``aggregation`` says.
    """

    reads_entropies: ClassVar[bool] = True

    aggregation: Aggregation = "token_mean"
    dual_clip: Annotated[float, Field(gt=1)] | None = 10.0
    entropy_quantile: Share = 0.8
    reasoning_clip_low: Share | None = 0.5
    reasoning_clip_high: NonNegative | None = 0.5
    reasoning_kl_coef: Coefficient = 0.0

    @model_validator(mode="after")
    def _in_the_loss(self) -> Archer:
        if self.kl_in == "reward":
            raise ValueError(
                "archer's penalties differ by token, so they are part of the loss: `kl_in: loss`"
            )
        return self

    def loss(self, inputs: LossInputs) -> Losses:
        """The clipped loss, with the bounds of each token's class."""
        knowledge = self._knowledge(inputs)
        ratio = probability_ratio(inputs.log_probs, inputs.old)
        found = [
            clipped_surrogate(
                ratio, inputs.advantages, clip_low=low, clip_high=high, dual_clip=self.dual_clip
            )
            for low, high in (
                (self.clip_low, self.clip_high),
                (self.reasoning_clip_low, self.reasoning_clip_high),
            )
        ]
        losses, clipped = (sure.where(knowledge, unsure) for sure, unsure in zip(*found, strict=True))
        return Losses(losses, {"clip_fraction": clipped, "reasoning": ~knowledge})

    def kl_weights(self, inputs: LossInputs) -> Tensor:
        """The penalty is a mean over the class, so the weight that the token's loss gets is taken out."""
        known = _knowledge_counts(inputs.lengths, self.entropy_quantile)
        unsure = inputs.lengths - known
        of_knowledge = self.kl_coef / known.sum().clamp(min=1)
        of_reasoning = self.reasoning_kl_coef / unsure.sum().clamp(min=1)
        return of_knowledge.where(self._knowledge(inputs), of_reasoning) / inputs.weights

    @property
    def needs_reference(self) -> bool:
        """Either class may have a penalty."""
        return self.kl_coef > 0 or self.reasoning_kl_coef > 0

    def _knowledge(self, inputs: LossInputs) -> Tensor:
        """[T] bool. Of equal entropies at the quantile the earlier token comes first.

        So the size of a class follows from the lengths alone, and needs no pass over the mini-batch.
        """
        inputs.reply_sum(inputs.entropies)  # refuses parts of replies
        by_entropy = inputs.entropies.argsort(stable=True)
        order = by_entropy[inputs.replies[by_entropy].argsort(stable=True)]
        replies = inputs.replies[order]
        here = replies.bincount(minlength=len(inputs.lengths))
        place = replies.new_ones(len(replies)).cumsum(0) - 1 - (here.cumsum(0) - here)[replies]
        known = place < _knowledge_counts(inputs.lengths, self.entropy_quantile)[replies]
        return known.new_zeros(len(known)).index_put((order,), known)


def _knowledge_counts(lengths: Tensor, quantile: float) -> Tensor:
    """[N]: how many of so many values are at most their quantile (linear between two), if all differ."""
    return (quantile * (lengths - 1).double() + 1e-9).floor().long() + 1
