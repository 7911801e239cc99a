"""Advantages and the length penalty: baselines, missing rewards, exact zeros."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.algorithm.advantage import group_advantages, soft_overlong_penalty

rewards = st.lists(st.one_of(st.just(math.nan), st.floats(-5, 5)), min_size=1, max_size=12)


@settings(deadline=None)
@given(rewards, st.sampled_from(["group_std", "group_mean"]))
def test_advantages_equal_the_textbook_formula_over_scored_replies_only(values, kind):
    advantages, scored = group_advantages(torch.tensor(values, dtype=torch.float64), kind)
    known = [v for v in values if not math.isnan(v)]
    if len(known) < 2:
        assert not scored.any()
        assert not advantages.any()
        return
    mean = sum(known) / len(known)
    std = math.sqrt(sum((v - mean) ** 2 for v in known) / (len(known) - 1))
    for value, advantage, has in zip(values, advantages.tolist(), scored.tolist(), strict=True):
        assert has == (not math.isnan(value))
        expected = 0.0 if math.isnan(value) else (value - mean) / (std + 1e-6 if kind == "group_std" else 1)
        assert advantage == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0, 0.0, 0.0], [3.0, -1.0, -1.0, -1.0]),
        ([1.0, 1.0, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 3, -1.0]),
        ([0.0, math.nan, 0.5], [-1.0, 0.0, 1.0]),
        ([-1.0, 1.0], [0.0, 0.0]),
    ],
)
def test_relative_advantages_divide_by_a_mean_above_zero(rewards, expected):
    advantages, _ = group_advantages(torch.tensor(rewards), "group_relative")
    assert advantages.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-3, 0.7])
@pytest.mark.parametrize("size", [3, 6, 7])
def test_equal_rewards_give_exactly_zero_although_their_mean_is_rounded(reward, size):
    advantages, scored = group_advantages(torch.full((size,), reward), "group_std")
    assert scored.all()
    assert advantages.tolist() == [0.0] * size


def test_a_missing_reward_is_not_a_zero_reward():
    advantages, scored = group_advantages(torch.tensor([1.0, 0.0, math.nan]), "group_mean")
    assert advantages.tolist() == [0.5, -0.5, 0.0]
    assert scored.tolist() == [True, True, False]


def test_a_single_scored_reply_has_no_baseline_and_is_not_trained_on():
    advantages, scored = group_advantages(torch.tensor([1.0, math.nan]), "group_mean")
    assert advantages.tolist() == [0.0, 0.0]
    assert scored.tolist() == [False, False]


def test_overlong_penalty_falls_from_zero_to_minus_one_over_the_buffer():
    lengths = torch.tensor([0, 79, 80, 85, 90, 100, 101])
    assert soft_overlong_penalty(lengths, 100, 20).tolist() == [0, 0, 0, -0.25, -0.5, -1, -1]


def test_overlong_penalty_is_off_without_a_buffer_and_refuses_one_that_does_not_fit():
    assert soft_overlong_penalty(torch.tensor([5, 100]), 100, 0).tolist() == [0, 0]
    with pytest.raises(ValueError, match="does not fit"):
        soft_overlong_penalty(torch.tensor([5]), 100, 101)
