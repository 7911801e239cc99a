"""Our advantages and losses beside verl's own, on the same tensors: value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.integrations.ragged import GROUPS, LENGTHS, MAX_TOKENS, REWARDS, Replies, advantages, ours, replies
from whetstone.algorithm.advantage import group_advantages, still_to_come, whitened
from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.loss import divergence
from whetstone.algorithm.named import algorithm_named

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
correction = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
ActorConfig = pytest.importorskip("verl.workers.config").ActorConfig
pytestmark = pytest.mark.integration

NO_DUAL_CLIP = 1e9


def at_the_end(data: Replies) -> torch.Tensor:
    """verl's rewards: a matrix with the reward at each reply's last token."""
    matrix = torch.zeros(len(LENGTHS), MAX_TOKENS, dtype=torch.float64)
    matrix[torch.arange(len(LENGTHS)), LENGTHS - 1] = REWARDS
    return matrix


@pytest.mark.parametrize(
    ("kind", "estimator", "options"),
    [
        ("group_std", "grpo", {}),
        ("group_mean", "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("leave_one_out", "rloo", {}),
    ],
)
def test_advantages_of_groups_are_verls(kind: str, estimator: str, options: dict[str, bool]) -> None:
    data = replies(1)
    estimate = core_algos.get_adv_estimator_fn(estimator)
    expected, _ = estimate(
        at_the_end(data), data.mask.double(), index=torch.tensor(GROUPS).numpy(), **options
    )
    found = data.padded(advantages(kind).repeat_interleave(LENGTHS))
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_group_of_one_is_trained_on_by_verl_and_not_by_us() -> None:
    one = at_the_end(replies(1))[:1]
    expected, _ = core_algos.compute_grpo_outcome_advantage(one, torch.ones_like(one), torch.zeros(1).numpy())
    assert float(expected[0, 0]) == pytest.approx(1.0, rel=1e-5)
    assert not group_advantages(REWARDS[:1], "group_std")[1].any()


def test_reinforce_pp_is_verls_return_whitened() -> None:
    """The penalty of each token from it on, taken from the reward at the end."""
    data = replies(2)
    penalty = 0.05 * divergence(data.old, data.reference, "k1")
    rewards = at_the_end(data) - data.padded(penalty)
    config = type("Gamma", (), {"gamma": 1.0})()
    expected, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(
        rewards, data.mask.double(), config=config
    )
    (found,) = whitened([REWARDS.repeat_interleave(LENGTHS) - still_to_come(penalty, LENGTHS)])
    assert torch.allclose(data.padded(found), expected, rtol=1e-6, atol=1e-7)


def test_reinforce_pp_with_a_baseline_is_verls() -> None:
    data = replies(3)
    expected, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
        at_the_end(data), data.mask.double(), torch.tensor(GROUPS).numpy()
    )
    (found,) = whitened([advantages("group_mean").repeat_interleave(LENGTHS)])
    assert torch.allclose(data.padded(found), expected, rtol=1e-6, atol=1e-7)


CASES = {
    "grpo": ({}, "vanilla", "seq-mean-token-mean", {}),
    "dr_grpo": ({}, "vanilla", "seq-mean-token-sum-norm", {"loss_scale_factor": MAX_TOKENS}),
    "dapo": ({"dual_clip": 1.4}, "vanilla", "token-mean", {"clip_ratio_high": 0.28, "clip_ratio_c": 1.4}),
    # Theirs bounds on both sides by 1 ± eps; with a lower bound of 0 that is one-sided.
    "cispo": ({"ratio_cap": 1.5}, "cispo", "token-mean", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.5}),
    "gspo": ({}, "gspo", "seq-mean-token-mean", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
}


@pytest.mark.parametrize("preset", CASES)
def test_the_loss_is_verls(preset: str) -> None:
    settings, name, mode, options = CASES[preset]
    data = replies(4, 4e-4 if preset == "gspo" else 0.5)
    spec = algorithm_named(preset, {"kl_coef": 0, **settings})
    expect_equal(spec, data, name, mode, options, None)


def test_truncated_importance_sampling_is_verls_by_token() -> None:
    data = replies(5)
    weights, _ = correction.compute_rollout_correction_weights(
        data.padded(data.old - data.engine),
        data.mask.double(),
        rollout_is="token",
        rollout_is_threshold=2.0,
    )
    spec = algorithm_named("dapo", {"correction": "tis"})
    expect_equal(spec, data, "vanilla", "token-mean", {"clip_ratio_high": 0.28}, weights)


def expect_equal(
    spec: Algorithm,
    data: Replies,
    name: str,
    mode: str,
    options: dict[str, Any],
    weights: torch.Tensor | None,
) -> None:
    given = advantages()
    value, gradient = ours(spec, data, given)
    matrix = data.padded(data.new.detach()).requires_grad_()
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=4,
        ppo_micro_batch_size_per_gpu=1,
        **{"clip_ratio_c": NO_DUAL_CLIP, **options},
    )
    if "loss_scale_factor" in options:
        config.global_batch_info["loss_scale_factor"] = options["loss_scale_factor"]
    loss, _ = core_algos.get_policy_loss_fn(name)(
        data.padded(data.old),
        matrix,
        given[:, None].expand(-1, MAX_TOKENS),
        data.mask.double(),
        mode,
        config=config,
        rollout_is_weights=weights,
    )
    slope = torch.autograd.grad(loss, matrix)[0]
    assert value == pytest.approx(float(loss.detach()), rel=1e-7, abs=1e-8)
    assert slope.abs().max() > 1e-3
    assert torch.allclose(gradient, slope, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("ours_", "theirs"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
def test_estimates_of_the_divergence_are_verls(ours_: str, theirs: str) -> None:
    data = replies(6)
    expected = core_algos.kl_penalty(data.new, data.reference, theirs)
    assert torch.allclose(divergence(data.new, data.reference, ours_), expected, rtol=1e-9)
