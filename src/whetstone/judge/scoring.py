"""From accepted cases to a score. The verdict is settled elsewhere and does not depend on it."""

from __future__ import annotations

from collections.abc import Collection
from math import fsum

from whetstone.problem import Scoring


def score(scoring: Scoring, counted: Collection[int], accepted: Collection[int]) -> float:
    """The score in [0, 1] of a program that got the cases ``accepted``, of the cases ``counted``.

    ``counted`` are the numbers of all cases, or of the subset that was asked for. With groups, a group
    counts with its cases in the subset; one without any is left out, and weights are shares of the
    sum of those that are left. 1.0 exactly when every counted case is accepted.
    """
    chosen, right = set(counted), set(accepted)
    if chosen <= right:
        return 1.0
    if scoring.mode == "all":
        return 0.0
    if scoring.mode == "fraction":
        return len(chosen & right) / len(chosen)
    groups = [(group.weight, chosen.intersection(group.cases)) for group in scoring.groups]
    earned = fsum(weight for weight, cases in groups if cases and cases <= right)
    return earned / fsum(weight for weight, cases in groups if cases)
