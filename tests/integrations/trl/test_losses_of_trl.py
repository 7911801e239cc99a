"""Our losses beside TRL's own, on the same tensors: value and gradient.

TRL's loss is a method of its trainer, so a bare object with the settings that it reads stands for the
trainer; what is computed is theirs. Its advantages are made amid generation and cannot be called; they differ
from ours by the epsilon beside the deviation (1e-4, ours 1e-6).
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.integrations.ragged import LENGTHS, MAX_TOKENS, Replies, advantages, ours, replies
from whetstone.algorithm.named import algorithm_named

GRPOTrainer = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
RLOOTrainer = pytest.importorskip("trl.trainer.rloo_trainer").RLOOTrainer
pytestmark = pytest.mark.integration


def theirs(data: Replies, given: torch.Tensor, trainer: type = GRPOTrainer, **settings: Any):
    matrix = data.padded(data.new.detach()).requires_grad_()
    accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    args = {"use_bias_correction_kl": False, "delta": settings.pop("delta", None), "steps_per_generation": 1}
    defaults = {
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "importance_sampling_level": "token",
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
        "aux_loss_enabled": False,
        "max_completion_length": MAX_TOKENS,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "use_adaptive_entropy": False,
    }
    stand_in = SimpleNamespace(
        **{**defaults, **settings},
        args=SimpleNamespace(**args),
        model=SimpleNamespace(training=True),
        accelerator=accelerator,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *a, **k: (matrix, data.padded(data.entropies), None),
    )
    stand_in.accelerator.sync_gradients = True
    ids = torch.zeros(len(LENGTHS), MAX_TOKENS, dtype=torch.long)
    rho = (data.old - data.engine).exp().clamp(max=2.0)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones_like(ids[:, :1]),
        "completion_ids": ids,
        "completion_mask": data.mask.long(),
        "advantages": given,
        "old_per_token_logps": data.padded(data.old),
        "ref_per_token_logps": data.padded(data.reference),
        "importance_sampling_ratio": data.padded(rho),
        "num_items_in_batch": LENGTHS.sum(),
        "old_logps": data.padded(data.old).sum(-1),
    }
    loss = trainer._compute_loss(stand_in, stand_in.model, inputs)
    return float(loss.detach()), torch.autograd.grad(loss, matrix)[0]


CASES = {
    "grpo": ({"kl_coef": 0.04}, {"beta": 0.04}),
    "dr_grpo": ({}, {"loss_type": "dr_grpo"}),
    "dapo": ({}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "cispo": ({"ratio_cap": 1.5}, {"loss_type": "cispo", "epsilon_high": 1.5}),
    "gspo": (
        {},
        {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
    ),
}


@pytest.mark.parametrize("preset", CASES)
def test_the_loss_is_trls(preset: str) -> None:
    settings, trl_settings = CASES[preset]
    spread = 4e-4 if preset == "gspo" else 0.5
    expect_equal(algorithm_named(preset, settings), replies(1, spread), **trl_settings)


def test_dual_clip_is_trls_delta() -> None:
    spec = algorithm_named("dapo", {"dual_clip": 1.4})
    expect_equal(spec, replies(2), loss_type="dapo", epsilon_high=0.28, delta=1.4)


def test_truncated_importance_sampling_is_trls_by_token() -> None:
    """With their weights by token, `token_truncate`; their default masks whole sequences instead."""
    spec = algorithm_named("dapo", {"correction": "tis"})
    expect_equal(spec, replies(3), loss_type="dapo", epsilon_high=0.28, use_vllm=True)


def test_the_entropy_bonus_is_trls_where_tokens_are_averaged() -> None:
    spec = algorithm_named("dapo", {"entropy_coef": 0.01})
    bonus = {"_entropy_bonus_enabled": True, "entropy_coef": 0.01}
    expect_equal(spec, replies(4), loss_type="dapo", epsilon_high=0.28, **bonus)


def test_rloo_is_trls() -> None:
    spec = algorithm_named("rloo", {"kl_coef": 0})  # the penalty is in the reward, in both
    expect_equal(spec, replies(5, 0.05), trainer=RLOOTrainer)


def expect_equal(spec: Any, data: Replies, **settings: Any) -> None:
    given = advantages()
    (value, gradient), (expected, slope) = ours(spec, data, given), theirs(data, given, **settings)
    assert value == pytest.approx(expected, rel=1e-9)
    assert slope.abs().max() > 1e-3
    assert torch.allclose(gradient, slope, rtol=1e-9, atol=1e-12)
