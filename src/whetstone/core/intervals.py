"""95% intervals of means over problems, which are also valid for few problems or rare successes.

This uses the standard library only and no random numbers: the same values give the same interval.
"""

from __future__ import annotations

import cmath
from collections import Counter
from collections.abc import Callable, Sequence
from math import cosh, exp, fsum, inf, log, pi, sinh, sqrt, tan
from statistics import NormalDist

LEVEL = 0.95
_STEP = 0.1
_NEGLIGIBLE = 1e-10


def share_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean of a value in [0, 1], from a sample of one value per problem.

    These are Gaffke's bounds (N. Gaffke 2005, "Three test statistics for a nonparametric one-sided hypothesis
    on the mean of a nonnegative variable", Mathematical Methods of Statistics 14; as an interval by
    Learned-Miller and Thomas, arXiv 1905.06208). One problem of value 1 is added to the sample, and problems
    are weighted by Dirichlet(1, …, 1). The upper bound is the quantile of the weighted mean; the lower bound
    uses a problem of value 0. For values that are 0 or 1 this is Clopper and Pearson's interval (Biometrika
    26, 1934), whose coverage is never below ``LEVEL``. For shares of n replies and for pass@k it is narrower
    if problems differ less. That its coverage is never below ``LEVEL`` there is a conjecture, which
    ``benchmarks/eval_coverage.py`` tests. Wilson's and Jeffreys' intervals fall to 89% at 20 problems.

    Raises ValueError without values, and for one outside [0, 1].
    """
    _check(values, 0.0)
    tail = (1.0 - LEVEL) / 2.0
    # The lower bound is the upper one of the mirrored values.
    mirrored = Counter(1.0 - value for value in values)
    return 1.0 - _upper_bound(mirrored, tail), _upper_bound(Counter(values), tail)


def difference_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean of a difference in [-1, 1], from a sample of one value per problem.

    This is Bonett and Price's adjusted Wald interval of a paired difference (Journal of Educational and
    Behavioral Statistics 37, 2012): one problem of difference +1 and one of -1 are added to the sample. Their
    interval is for differences of -1, 0 and 1, with the normal quantile. Here the variance is that of any
    differences, and the quantile is Student's. With the normal one, coverage falls to 92% at 20 problems.
    Twenty problems without any difference give -13.7% to +13.7%.

    Raises ValueError without values, and for one outside [-1, 1].
    """
    _check(values, -1.0)
    size = len(values) + 2
    mean = fsum(values) / size
    variance = (fsum((value - mean) ** 2 for value in values) + 2.0 + 2.0 * mean * mean) / (size - 1)
    half = _student_quantile(0.5 + LEVEL / 2.0, size - 1) * sqrt(variance / size)
    return max(mean - half, -1.0), min(mean + half, 1.0)


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's interval of the mean of numbers without known bounds, such as rewards.

    It assumes that the mean is about normally distributed, so few problems with rare large values make it too
    narrow. Equal values, and a single one, give an interval of width 0. Raises ValueError without values.
    """
    size = len(values)
    _require_values(values)
    mean = fsum(values) / size
    if size == 1:
        return mean, mean
    variance = fsum((value - mean) ** 2 for value in values) / (size - 1)
    half = _student_quantile(0.5 + LEVEL / 2.0, size - 1) * sqrt(variance / size)
    return mean - half, mean + half


def _require_values(values: Sequence[float]) -> None:
    if not values:
        raise ValueError("no problem has a value; there is nothing to average")


def _check(values: Sequence[float], least: float) -> None:
    _require_values(values)
    wrong = next((value for value in values if not least <= value <= 1.0), None)
    if wrong is not None:
        raise ValueError(f"the value of a problem is {wrong:g}; it lies from {least:g} to 1")


def _upper_bound(counts: Counter[float], tail: float) -> float:
    """Return the value that the weighted mean of the problems and one of value 1 exceeds with probability
    ``tail``."""
    terms = [(count, value) for value, count in (counts + Counter({1.0: 1})).items()]
    total = sum(count for count, _ in terms)
    mean = fsum(count * value for count, value in terms) / total
    # All values are 1, so there is no mass above the mean to search in.
    if mean > 1.0 - 1e-9:
        return 1.0

    def excess(bound: float) -> float:
        return log(max(_exceeds(terms, bound), 1e-300) / tail)

    # The search starts above the mean, where the saddle point is positive. Skewness may leave less than
    # ``tail`` there.
    low, high = mean + 1e-9 * (1.0 - mean), 1.0 - 1e-12
    return low if excess(low) <= 0.0 else _root(excess, low, high)


def _exceeds(terms: Sequence[tuple[int, float]], bound: float) -> float:
    """Return P(the mean of the values, weighted by a Dirichlet of the counts, is at least ``bound``).

    ``bound`` is above the mean. The weights are gamma variables over their sum, so this is P(sum G_j (value_j
    - bound) >= 0). It is the integral of exp(K(s)) / (2 pi i s), where K(s) = -sum m_j log(1 - s (value_j -
    bound)) is the cumulant generating function. The line of integration crosses the real axis at the saddle
    point of K, where the integrand falls fastest (Daniels 1954, Annals of Mathematical Statistics 25).
    """
    sides = [(count, value - bound) for count, value in terms]
    saddle = _saddle_point(sides)
    width = 1.0 / sqrt(sum(m * (d / (1.0 - saddle * d)) ** 2 for m, d in sides))
    total, at, size = 0.0, 0.0, inf
    first = exp(-sum(m * log(1.0 - saddle * d) for m, d in sides)) / saddle
    while size > _NEGLIGIBLE * first:
        # The substitution by sinh spreads the points, so that the trapezoidal rule needs few of them.
        s = complex(saddle, width * sinh(at))
        value = cmath.exp(-sum(m * cmath.log(1.0 - s * d) for m, d in sides)) / s * cosh(at)
        # The integrand is symmetric: only one half is summed, and its first point counts half.
        total += value.real / (1.0 if at else 2.0)
        size = abs(value)
        at += _STEP
    return total * _STEP * width / pi


def _saddle_point(sides: Sequence[tuple[int, float]]) -> float:
    """Return the zero of K', by Newton's method within the bounds between which K exists."""
    low, high = 0.0, 1.0 / max(d for _, d in sides)
    s = high / 2.0
    for _ in range(200):
        slopes = [(m, d / (1.0 - s * d)) for m, d in sides]
        slope = sum(m * x for m, x in slopes)
        low, high = (low, s) if slope > 0.0 else (s, high)
        step = s - slope / sum(m * x * x for m, x in slopes)
        # A step that leaves the bracket is replaced by a bisection, so this always converges.
        new = step if low < step < high else (low + high) / 2.0
        if abs(new - s) <= 1e-12 * s:
            break
        s = new
    return s


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a falling function, by secants that keep a bracket (Illinois method)
    and bisection."""
    at_low, at_high = function(low), function(high)
    for turn in range(100):
        middle = (low + high) / 2.0
        # Every third step is a bisection, which bounds the number of steps.
        if turn % 3 != 2:
            middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = function(middle)
        if abs(value) < 1e-9 or high - low < 1e-9:
            return middle
        if value > 0.0:
            # Halving the value at the other end keeps the secants from sticking to it (Illinois).
            low, at_low, at_high = middle, value, at_high / 2.0
        else:
            high, at_high, at_low = middle, value, at_low / 2.0
    return (low + high) / 2.0


def _student_quantile(share: float, freedom: int) -> float:
    """Return Student's quantile: exact for 1 and 2 degrees of freedom, else by its expansion about the normal
    one (Abramowitz and Stegun 26.7.5), with an error of at most 0.12%."""
    if freedom == 1:
        return tan(pi * (share - 0.5))
    if freedom == 2:
        return (2.0 * share - 1.0) / sqrt(2.0 * share * (1.0 - share))
    x = NormalDist().inv_cdf(share)
    y = x * x
    terms = (
        (y + 1) / 4,
        ((5 * y + 16) * y + 3) / 96,
        (((3 * y + 19) * y + 17) * y - 15) / 384,
        ((((79 * y + 776) * y + 1482) * y - 1920) * y - 945) / 92160,
    )
    return x * (1 + sum(term / freedom ** (power + 1) for power, term in enumerate(terms)))
