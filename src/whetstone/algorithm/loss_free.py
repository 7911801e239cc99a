"""Which replies of a group carry no loss, and why. Without torch, so a flow can account for their tokens."""

from __future__ import annotations

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.sample import Group

# The reply has no reward, or its group has too few rewards for a baseline.
UNSCORED = "unscored"

# The reply was cut at the token limit, and the algorithm masks such replies.
TRUNCATED = "truncated"


def loss_free_reasons(group: Group, spec: Algorithm) -> list[str]:
    """Return for each sample why it carries no loss; empty if it carries loss, or has no tokens."""
    cut = [sample.finish_reason == "length" for sample in group.samples]
    scored = [
        sample.reward is not None and (spec.truncated_in_baseline or not cut_off)
        for sample, cut_off in zip(group.samples, cut, strict=True)
    ]
    baseline = spec.advantage == "none" or sum(scored) >= 2
    return [
        TRUNCATED if cut_off and spec.mask_truncated else "" if has_reward and baseline else UNSCORED
        for cut_off, has_reward in zip(cut, scored, strict=True)
    ]
