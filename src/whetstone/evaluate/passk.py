"""pass@k, its interval, and the paired difference of two evaluations. Standard library only.

The interval is the percentile bootstrap over problems: it says how much the mean would move with
another draw of problems of the same sort. Replies within a problem are not redrawn. When every
problem has the same value the interval has no width, whatever the number of problems.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import fsum

from msgspec import Struct

RESAMPLES = 2000


class Estimate(Struct, frozen=True):
    """A mean over ``problems`` problems with its 95% interval, all in the unit of the values."""

    value: float
    low: float
    high: float
    problems: int


class Difference(Struct, frozen=True):
    """Mean of ``b - a`` over the problems both have, with its 95% interval.

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
    """The unbiased estimate of P(at least one of k replies is right), from c right ones among n.

    1 - C(n-c, k) / C(n, k) as a product, which neither overflows nor cancels (Chen et al. 2021,
    arXiv 2107.03374, section 2.1). With k = 1 this is c / n, which others call avg@n.

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


def mean_with_interval(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Estimate:
    """Mean of one value per problem, with its percentile bootstrap interval.

    The same values and seed give the same interval. Raises ValueError without values.
    """
    if not values:
        raise ValueError("no problem has a value; there is nothing to average")
    count = len(values)
    mean = fsum(values) / count
    if min(values) == max(values):
        return Estimate(mean, mean, mean, count)
    rng = random.Random(seed)
    means = sorted(fsum(rng.choices(values, k=count)) / count for _ in range(resamples))
    tail = (1.0 - level) / 2.0
    low, high = _quantile(means, tail), _quantile(means, 1.0 - tail)
    return Estimate(mean, min(low, mean), max(high, mean), count)


def paired_difference(
    a: Mapping[str, float], b: Mapping[str, float], *, seed: int = 0, resamples: int = RESAMPLES
) -> Difference:
    """Compare two evaluations problem by problem: ``a`` and ``b`` map problem ids to values.

    Only problems in both count. Pairing removes the spread between easy and hard problems, so the
    interval is far narrower than the two single ones suggest. Raises ValueError without a common one.
    """
    common = [key for key in a if key in b]
    if not common:
        raise ValueError("the two evaluations have no problem in common")
    steps = [b[key] - a[key] for key in common]
    estimate = mean_with_interval(steps, seed=seed, resamples=resamples)
    better, worse = sum(s > 0 for s in steps), sum(s < 0 for s in steps)
    return Difference(
        a=fsum(a[key] for key in common) / len(common),
        b=fsum(b[key] for key in common) / len(common),
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        better=better,
        worse=worse,
        equal=len(common) - better - worse,
        only_a=len(a) - len(common),
        only_b=len(b) - len(common),
    )


def _quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
