"""Supervised fine-tuning on the model's own accepted replies: rejection sampling (RFT, arXiv 2308.01825)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whetstone.algorithm.presets.ssd import SSD

if TYPE_CHECKING:
    from whetstone.core.sample import Sample


class RejectionSFT(SSD):
    """The cross-entropy of the replies that solved their problem. Equal replies to a problem all count."""

    def trained_reward(self, sample: Sample) -> float | None:
        """1 for an accepted reply; the others carry no loss and are in no denominator."""
        return 1.0 if sample.accepted else None
