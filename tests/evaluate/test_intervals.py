"""A 95% interval holds the true mean at least 93 times in 100, at the edges too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.core.intervals import difference_interval, share_interval, student_interval

SEED, TRIALS, REPLIES = 7, 120, 8


def _greedy(size: int, right: int) -> tuple[float, float]:
    return share_interval([1.0] * right + [0.0] * (size - right))


@pytest.mark.parametrize(
    ("size", "right", "low", "high"),
    # Clopper and Pearson's limits, from scipy.stats.binomtest(right, size).proportion_ci("exact").
    [
        (1, 1, 0.025, 1.0),
        (20, 0, 0.0, 0.16843347),
        (20, 3, 0.03207094, 0.37892683),
        (20, 20, 0.83156653, 1.0),
        (164, 10, 0.02962447, 0.10927594),
        (500, 499, 0.98890752, 0.99994937),
    ],
)
def test_of_right_and_wrong_it_is_the_exact_binomial_one(
    size: int, right: int, low: float, high: float
) -> None:
    assert _greedy(size, right) == pytest.approx((low, high), abs=2e-6)


@pytest.mark.parametrize("size", [20, 31, 50, 100])
def test_covers_one_reply_to_each_problem_at_every_rate(size: int) -> None:
    intervals = [_greedy(size, right) for right in range(size + 1)]
    for rate in (step / 500 for step in range(10, 491)):
        held = sum(
            comb(size, right) * rate**right * (1 - rate) ** (size - right)
            for right, (low, high) in enumerate(intervals)
            if low <= rate <= high
        )
        assert held >= 0.95 - 1e-6, rate


@pytest.mark.drawn(2)
@pytest.mark.parametrize("alike", [0.0, 0.4])  # share of the variance that lies between problems
@pytest.mark.parametrize("rate", [0.03, 0.1, 0.97])
def test_covers_eight_replies_to_each_of_twenty_problems(rate: float, alike: float) -> None:
    rng = random.Random(SEED)
    held = 0
    for _ in range(TRIALS):
        low, high = share_interval([_replies(_difficulty(rate, alike, rng), rng) for _ in range(20)])
        held += low <= rate <= high
    assert held >= 0.93 * TRIALS


@pytest.mark.parametrize(("gained", "lost"), [(0.02, 0.0), (0.1, 0.0), (0.05, 0.05), (0.3, 0.2), (0.7, 0.3)])
def test_covers_a_difference_of_greedy_evaluations_exactly(gained: float, lost: float) -> None:
    size, held = 20, 0.0
    for up in range(size + 1):
        for down in range(size + 1 - up):
            rest = size - up - down
            low, high = difference_interval([1.0] * up + [-1.0] * down + [0.0] * rest)
            if low - 1e-12 <= gained - lost <= high + 1e-12:
                ways = comb(size, up) * comb(size - up, down)
                held += ways * gained**up * lost**down * max(1 - gained - lost, 0.0) ** rest
    assert held >= 0.93


@pytest.mark.parametrize("rate", [0.03, 0.5, 0.97])
def test_covers_a_difference_of_eight_replies(rate: float) -> None:
    rng = random.Random(SEED)
    held = 0
    for _ in range(TRIALS):
        problems = [_difficulty(rate, 0.3, rng) for _ in range(30)]
        low, high = difference_interval([_replies(p, rng) - _replies(p, rng) for p in problems])
        held += low <= 0.0 <= high
    assert held >= 0.93 * TRIALS


def test_twenty_problems_without_a_success_or_a_difference_leave_room() -> None:
    assert share_interval([0.0] * 20) == pytest.approx((0.0, 0.168), abs=1e-3)
    assert difference_interval([0.0] * 20) == pytest.approx((-0.137, 0.137), abs=1e-3)


def test_many_replies_to_problems_alike_say_more_than_one() -> None:
    low, high = share_interval([0.5] * 100)
    assert high - low < 0.06
    assert _width(_greedy(100, 50)) > 0.19


def test_grows_narrow_as_theory_says() -> None:
    values = [random.Random(i).betavariate(1, 2) for i in range(400)]
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    expected = 2 * 1.96 * spread / len(values) ** 0.5
    assert _width(share_interval(values)) == pytest.approx(expected, rel=0.1)
    assert _width(difference_interval(values)) == pytest.approx(expected, rel=0.1)


@settings(max_examples=20)
@given(st.lists(st.one_of(st.sampled_from([0.0, 1.0, 0.125]), st.floats(0, 1)), min_size=1, max_size=12))
def test_lies_in_its_range_and_mirrors(values: list[float]) -> None:
    low, high = share_interval(values)
    mean = sum(values) / len(values)
    assert 0.0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1.0
    mirrored = share_interval([1.0 - value for value in values])
    assert mirrored == pytest.approx((1.0 - high, 1.0 - low), abs=1e-6)
    down, up = difference_interval([-value for value in values])
    assert -1.0 <= down < up <= 1.0


@pytest.mark.parametrize(
    ("values", "low", "high"),
    # By hand: the mean, and Student's quantile (from a table) times deviation / sqrt(size).
    [
        ([7.0], 7.0, 7.0),
        ([-1.0, 3.0], 1 - 12.7062 * 2, 1 + 12.7062 * 2),
        ([2.0, 4.0, 6.0], 4 - 4.30265 * 2 / 3**0.5, 4 + 4.30265 * 2 / 3**0.5),
        ([0.0, 2.0, 2.0, 4.0], 2 - 3.18245 * (8 / 3 / 4) ** 0.5, 2 + 3.18245 * (8 / 3 / 4) ** 0.5),
        ([-5.0] * 8, -5.0, -5.0),
    ],
)
def test_of_numbers_without_bounds_it_is_students(values: Sequence[float], low: float, high: float) -> None:
    assert student_interval(values) == pytest.approx((low, high), abs=4e-3)


def test_covers_the_mean_of_rewards_of_any_sign() -> None:
    rng = random.Random(SEED)
    held = 0
    for _ in range(400):
        low, high = student_interval([rng.choice([-1.0, 0.5, 3.0]) for _ in range(20)])
        held += low <= 2.5 / 3 <= high
    assert held >= 0.92 * 400


@pytest.mark.parametrize("values", [[], [0.5, 1.5], [0.5, float("nan")]])
def test_what_is_no_share_has_no_interval(values: Sequence[float]) -> None:
    with pytest.raises(ValueError, match=r"no problem|it lies from"):
        share_interval(values)
    with pytest.raises(ValueError, match=r"no problem|it lies from"):
        difference_interval(values)


def _difficulty(rate: float, alike: float, rng: random.Random) -> float:
    total = 1 / alike - 1 if alike else 0.0
    return rng.betavariate(rate * total, (1 - rate) * total) if alike else rate


def _replies(rate: float, rng: random.Random) -> float:
    return sum(rng.random() < rate for _ in range(REPLIES)) / REPLIES


def _width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]
