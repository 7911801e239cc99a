"""DAPO (arXiv 2503.14476)."""

from __future__ import annotations

from whetstone.algorithm.algorithm import Aggregation, Coefficient, NaturalOrOff
from whetstone.algorithm.presets.grpo import GRPO
from whetstone.core.settings import NonNegative


class DAPO(GRPO):
    """GRPO with clip-higher, a global token mean, dynamic sampling and a soft length penalty; no KL."""

    aggregation: Aggregation = "token_mean"
    kl_coef: Coefficient = 0.0
    clip_high: NonNegative | None = 0.28
    refill_rounds: NaturalOrOff = 3
    overlong_buffer: NaturalOrOff = 4096
