"""Decoupled PPO (arXiv 2110.00641), as AReaL trains on stale replies with it (arXiv 2505.24298)."""

from __future__ import annotations

from whetstone.algorithm.algorithm import TIS, Aggregation, Coefficient, Correction
from whetstone.algorithm.presets.grpo import GRPO


class DecoupledPPO(GRPO):
    """The clip refers to the policy at the start of the step, and a weight corrects for who drew the reply.

    -w * min(u A, clip(u) A) with u = p / p_old and w = p_old / p_engine, bounded by the correction: ``tis``
    caps w (5 unless set), ``icepop`` with a ``low`` of 0 drops tokens above.
    """

    aggregation: Aggregation = "token_mean"
    kl_coef: Coefficient = 0.0
    correction: Correction = TIS(cap=5.0)
