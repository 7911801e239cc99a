"""pass@k is the share of k-subsets with a right reply; its interval and the paired one behave."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.evaluate.passk import mean_with_interval, paired_difference, pass_at_k


@given(st.data())
def test_equals_the_share_of_k_subsets_with_a_right_reply(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    replies = [i < c for i in range(n)]
    subsets = list(combinations(replies, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_is_one_when_fewer_than_k_are_wrong_and_exact_at_the_ends() -> None:
    assert pass_at_k(10, 3, 8) == 1.0
    assert pass_at_k(10, 0, 10) == 0.0
    assert pass_at_k(3, 1, 1) == 1 / 3
    assert 0.0 < pass_at_k(100_000, 1, 50_000) < 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0), (0, 0, 1)])
def test_impossible_counts_have_no_estimate(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="repl"):
        pass_at_k(n, c, k)


def test_interval_has_the_width_that_theory_gives() -> None:
    values = [1.0] * 120 + [0.0] * 280
    estimate = mean_with_interval(values)
    half = 1.96 * (0.3 * 0.7 / 400) ** 0.5
    assert estimate.value == pytest.approx(0.3)
    assert estimate.problems == 400
    assert estimate.low == pytest.approx(0.3 - half, abs=0.01)
    assert estimate.high == pytest.approx(0.3 + half, abs=0.01)


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_interval_holds_the_mean(values: list[float]) -> None:
    estimate = mean_with_interval(values)
    assert estimate.low <= estimate.value <= estimate.high


def test_a_number_outside_the_shares_has_students_interval() -> None:
    estimate = mean_with_interval([2.0, 4.0, 6.0])
    assert (estimate.value, estimate.problems) == (4.0, 3)
    assert (estimate.low, estimate.high) == pytest.approx((-0.96827, 8.96827), abs=1e-4)
    paired = paired_difference({"x": 1.0, "y": 5.0, "z": 0.0}, {"x": 3.0, "y": 5.0, "z": 4.0})
    assert (paired.a, paired.b, paired.value) == (2.0, 4.0, 2.0)
    assert (paired.low, paired.high) == pytest.approx((-2.96827, 6.96827), abs=1e-4)
    assert (paired.better, paired.worse, paired.equal) == (2, 0, 1)


def test_no_problem_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no problem"):
        mean_with_interval([])


def test_pairing_sees_a_small_gain_that_single_intervals_hide() -> None:
    before = {f"p{i}": float(i % 2) * 0.8 for i in range(100)}
    after = {key: value + (0.05 if int(key[1:]) % 4 else 0.0) for key, value in before.items()}
    paired = paired_difference(before, after)
    assert paired.low > 0
    assert mean_with_interval(list(after.values())).low < mean_with_interval(list(before.values())).high
    assert (paired.better, paired.worse, paired.equal) == (75, 0, 25)
    assert paired.value == pytest.approx(paired.b - paired.a)


def test_pairing_counts_problems_of_one_side_only() -> None:
    paired = paired_difference(
        {"x": 0.0, "y": 1.0, "only a": 1.0}, {"x": 1.0, "y": 1.0, "b1": 0.0, "b2": 0.0}
    )
    assert (paired.only_a, paired.only_b) == (1, 2)
    assert (paired.a, paired.b, paired.value) == (0.5, 1.0, 0.5)
    with pytest.raises(ValueError, match="in common"):
        paired_difference({"x": 1.0}, {"y": 1.0})
