"""The loss of a recipe: that of its algorithm, corrected, with the penalties that any algorithm may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whetstone.algorithm.algorithm import Algorithm, Losses, LossInputs
from whetstone.algorithm.loss import divergence

if TYPE_CHECKING:
    from torch import Tensor


def objective(spec: Algorithm, found: Losses, inputs: LossInputs, entropies: Tensor) -> Losses:
    """What is minimised for each token, [T], and what is reported.

    found: what ``spec.loss`` makes of ``inputs``. entropies: [T], those of ``inputs``, with their gradient
    where ``entropy_coef`` is above 0. The correction is of the policy gradient only, not of the penalties.
    Raises ValueError for a loss that is not one a token.
    """
    losses, metrics = found.tokens, dict(found.metrics)
    if losses.shape != inputs.log_probs.shape:
        raise ValueError(
            f"the loss of algorithm `{spec.preset}` has the shape {tuple(losses.shape)}; "
            f"return one value for each of the {len(inputs.log_probs)} tokens"
        )
    if spec.correction is not None:
        factors, noted = spec.correction.factors(inputs.old, inputs.engine)
        losses, metrics = losses * factors, metrics | noted
    if inputs.reference is not None:
        metrics["kl"] = divergence(inputs.log_probs.detach(), inputs.reference, "k3")
        if not spec.penalises_reward:
            penalty = divergence(inputs.log_probs, inputs.reference, spec.kl_estimate)
            losses = losses + spec.kl_weights(inputs) * penalty
    if spec.entropy_coef > 0:
        losses = losses - spec.entropy_coef * entropies
    return Losses(losses, metrics)
