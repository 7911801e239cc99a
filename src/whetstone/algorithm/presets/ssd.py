"""SSD, simple self-distillation (arXiv 2604.01193), and the cross-entropy that ``rejection_sft`` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from whetstone.algorithm.algorithm import (
    Aggregation,
    Algorithm,
    Baseline,
    Losses,
    LossInputs,
    Switch,
    token_by_token,
)

if TYPE_CHECKING:
    from whetstone.core.sample import Sample

# Settings of a policy gradient, with the value of each that leaves it out.
_POLICY_GRADIENT = {
    "advantage": "none",
    "whiten": False,
    "correction": None,
    "kl_coef": 0.0,
    "drop_zero_variance": False,
    "refill_rounds": 0,
    "overlong_buffer": 0,
    "truncated_in_baseline": True,
}


class SSD(Algorithm):
    """The cross-entropy of every reply that the model wrote, right or wrong: no reward, no filter.

    The gain comes from sampling at another temperature and with top-k and top-p, while the loss is that of
    softmax(logits). Sampled from softmax(logits) itself, the gradient is zero on average.

    sampling_weights: ``start`` samples all replies with the weights of the start of the run, as published;
        ``current`` with those of the last step.
    """

    cross_entropy: ClassVar[bool] = True

    advantage: Baseline = "none"
    aggregation: Aggregation = "token_mean"
    drop_zero_variance: Switch = False
    sampling_weights: Literal["start", "current"] = "start"

    def trained_reward(self, sample: Sample) -> float | None:
        """1 for every reply that is whole, so that all have the same weight."""
        return None if sample.finish_reason == "abort" else 1.0

    @property
    def samples_with_start(self) -> bool:
        """Whether all replies are sampled with the weights of the start of the run."""
        return self.sampling_weights == "start"

    @token_by_token
    def loss(self, inputs: LossInputs) -> Losses:
        """-log p of each token."""
        return Losses(-inputs.log_probs, {})

    @model_validator(mode="after")
    def _check_settings(self) -> SSD:
        for name, unset in _POLICY_GRADIENT.items():
            if getattr(self, name) != unset:
                raise ValueError(
                    f"`{name}` is a setting of policy gradients, and `{self.preset}` is a cross-entropy of "
                    f"replies; remove it"
                )
        return self
