"""Losses against formulas written out token by token."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.algorithm.loss import divergence, probability_ratio, token_weights
from whetstone.algorithm.named import algorithm_named
from whetstone.algorithm.presets.grpo import clipped_surrogate

finite = st.floats(-3, 3)
advantages = st.one_of(st.just(0.0), st.floats(0.01, 3), st.floats(-3, -0.01))
token = st.tuples(st.floats(-4, 0), st.floats(-4, 0), advantages)


def naive_loss(log_p, log_old, advantage, low, high, dual):
    ratio = math.exp(log_p - log_old)
    objective = min(ratio * advantage, max(1 - low, min(1 + high, ratio)) * advantage)
    if dual is not None and advantage < 0:
        objective = max(objective, dual * advantage)
    return -objective


@settings(deadline=None)
@given(
    st.lists(token, min_size=1, max_size=8),
    st.floats(0, 0.9),
    st.floats(0, 2),
    st.one_of(st.none(), st.floats(1.5, 10)),
)
def test_clipped_surrogate_equals_the_written_out_formula(tokens, low, high, dual):
    log_p, log_old, advantage = (torch.tensor(c, dtype=torch.float64) for c in zip(*tokens, strict=True))
    ratio = probability_ratio(log_p, log_old)
    loss, _ = clipped_surrogate(ratio, advantage, clip_low=low, clip_high=high, dual_clip=dual)
    expected = [naive_loss(new, old, gain, low, high, dual) for new, old, gain in tokens]
    assert loss.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(
    st.lists(token, min_size=1, max_size=8),
    st.floats(0.01, 0.9),
    st.floats(0.01, 2),
    st.one_of(st.none(), st.floats(1.5, 10)),
)
def test_tokens_reported_as_clipped_are_those_without_gradient(tokens, low, high, dual):
    log_p, log_old, advantage = (torch.tensor(c, dtype=torch.float64) for c in zip(*tokens, strict=True))
    log_p.requires_grad_()
    ratio = probability_ratio(log_p, log_old)
    loss, clipped = clipped_surrogate(ratio, advantage, clip_low=low, clip_high=high, dual_clip=dual)
    (gradient,) = torch.autograd.grad(loss.sum(), log_p)
    still = (gradient == 0) & (advantage != 0)
    assert torch.equal(clipped & (advantage != 0), still)


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("bounds", [None, (0.0, 0.0)])
def test_on_policy_every_clipped_loss_has_the_policy_gradient(preset, dual, bounds):
    spec: Any = algorithm_named(preset)
    low, high = bounds or (spec.clip_low, spec.clip_high)
    log_p = torch.tensor([-0.1, -2.0, -5.0, -0.7], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([1.5, -0.5, -2.0, 0.0], dtype=torch.float64)
    ratio = probability_ratio(log_p, log_p.detach())
    loss, clipped = clipped_surrogate(ratio, advantage, clip_low=low, clip_high=high, dual_clip=dual)
    (gradient,) = torch.autograd.grad(loss.sum(), log_p)
    assert gradient.tolist() == (-advantage).tolist()
    assert not clipped.any()


def test_a_far_off_token_gives_a_finite_loss():
    ratio = probability_ratio(torch.tensor([0.0]), torch.tensor([-1e6]))
    loss, _ = clipped_surrogate(ratio, torch.tensor([-1.0]), clip_low=0.2, clip_high=0.2)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(divergence(torch.tensor([-1e6]), torch.tensor([0.0]), "k3")).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-6, 0), st.floats(-6, 0)), min_size=1, max_size=8))
def test_k3_is_never_negative_and_zero_only_where_the_policies_agree(pairs):
    log_p, log_ref = (torch.tensor(c, dtype=torch.float64) for c in zip(*pairs, strict=True))
    found = divergence(log_p, log_ref, "k3")
    expected = [math.expm1(r - p) - (r - p) for p, r in pairs]
    assert (found >= 0).all()
    assert found.tolist() == pytest.approx(expected)
    assert divergence(log_p, log_p, "k3").tolist() == [0.0] * len(pairs)


def test_k3_is_an_unbiased_estimate_of_the_divergence():
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.2, 0.6]).double()
    exact = (p * (p / q).log()).sum()
    assert float((p * divergence(p.log(), q.log(), "k3")).sum()) == pytest.approx(float(exact))


@settings(deadline=None)
@given(
    st.lists(st.lists(finite, min_size=1, max_size=6), min_size=1, max_size=6),
    st.sampled_from(["token_mean", "sequence_mean", "fixed_length"]),
)
def test_weights_reproduce_each_aggregation(losses, aggregation):
    weights = token_weights(torch.tensor([len(row) for row in losses]), aggregation, max_tokens=6).tolist()
    total = sum(w * x for w, row in zip(weights, losses, strict=True) for x in row)
    tokens = sum(map(len, losses))
    expected = {
        "token_mean": sum(map(sum, losses)) / tokens,
        "sequence_mean": sum(sum(row) / len(row) for row in losses) / len(losses),
        "fixed_length": sum(map(sum, losses)) / (len(losses) * 6),
    }[aggregation]
    assert total == pytest.approx(expected, abs=1e-12)
