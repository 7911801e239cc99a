"""pass@k and mean rewards, their intervals, and the paired difference of two evaluations.

An interval (``intervals.py``) bounds the mean over all problems of the same kind with the same number of
replies: it covers the variation of another sample of problems and replies. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from msgspec import Struct

from whetstone.core.intervals import difference_interval, share_interval, student_interval


class Estimate(Struct, frozen=True):
    """A mean over ``problems`` problems with its 95% interval."""

    value: float
    low: float
    high: float
    problems: int


class PairedDifference(Struct, frozen=True):
    """The mean of ``b - a`` over common problems, with its 95% interval.

    ``better``, ``worse`` and ``equal`` count problems; ``only_a`` and ``only_b`` were left out.
    """

    a: float
    b: float
    value: float
    low: float
    high: float
    better: int
    worse: int
    equal: int
    only_a: int
    only_b: int


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of P(at least one of k replies is right), from c right ones among n.

    1 - C(n-c, k) / C(n, k) as a product, which neither overflows nor cancels (Chen et al. 2021,
    arXiv 2107.03374, section 2.1). With k = 1 this is c / n, also called avg@n.

    Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} replies; there are {n}")
    if not 0 <= c <= n:
        raise ValueError(f"{c} right replies of {n}")
    if k == 1:
        return c / n
    if n - c < k:
        return 1.0
    miss = 1.0
    for i in range(n - c + 1, n + 1):
        miss *= 1.0 - k / i
    return 1.0 - miss


def mean_with_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of one number per problem, such as pass@k or its mean reward, with its 95% interval.

    Numbers in [0, 1] count as shares, whose interval is also valid for few problems. If one is outside, the
    interval is Student's. Raises ValueError without values.
    """
    low, high = share_interval(values) if _are_shares(values) else student_interval(values)
    mean = fsum(values) / len(values)
    return Estimate(mean, min(low, mean), max(high, mean), len(values))


def paired_difference(a: Mapping[str, float], b: Mapping[str, float]) -> PairedDifference:
    """Compare two evaluations problem by problem: ``a`` and ``b`` map problem ids to numbers.

    The interval depends on the numbers as in ``mean_with_interval``. Only problems in both count. Pairing
    removes the spread between easy and hard problems, so the interval is far narrower than the two single
    ones suggest. Raises ValueError without a common one.
    """
    common = [key for key in a if key in b]
    if not common:
        raise ValueError("the two evaluations have no problem in common")
    steps = [b[key] - a[key] for key in common]
    mean = fsum(steps) / len(steps)
    shares = _are_shares([*(a[key] for key in common), *(b[key] for key in common)])
    low, high = difference_interval(steps) if shares else student_interval(steps)
    better, worse = sum(s > 0 for s in steps), sum(s < 0 for s in steps)
    return PairedDifference(
        a=fsum(a[key] for key in common) / len(common),
        b=fsum(b[key] for key in common) / len(common),
        value=mean,
        low=min(low, mean),
        high=max(high, mean),
        better=better,
        worse=worse,
        equal=len(common) - better - worse,
        only_a=len(a) - len(common),
        only_b=len(b) - len(common),
    )


def _are_shares(values: Sequence[float]) -> bool:
    return all(0.0 <= value <= 1.0 for value in values)
