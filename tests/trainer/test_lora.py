"""Adapters: they alone are trained, on one rank or two, and merged they are the model that was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.rank_processes import on_ranks
from tests.trainer.test_checkpoints import save
from tests.trainer.test_ranks import distance, size, weights
from tests.trainer.tiny_models import random_batch, tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.trainer.checkpoint import load_checkpoint
from whetstone.trainer.forward import Forward
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import LoraSection, TrainerSection
from whetstone.trainer.trainer import Trainer

pytest.importorskip("peft", reason="the extra `lora` is not installed")


def make(ranks: Ranks, **changes: Any) -> Trainer:
    model = tiny_llama(**changes)
    add_adapters(model, LoraSection(rank=4, alpha=8, targets=("q_proj", "down_proj")), seed=5)
    return Trainer(
        model,
        algorithm_named("grpo", {"kl_coef": 0.1}),
        TrainerSection(lr=3e-2),
        temperature=1.0,
        max_tokens=12,
        ranks=ranks,
    )


def test_only_the_targets_change_and_merging_keeps_the_log_probs() -> None:
    trainer = make(Ranks())
    before = weights(trainer)
    assert all(torch.equal(before[name], p) for name, p in tiny_llama().named_parameters())
    for seed in range(3):
        trainer.step(random_batch(seed))
    after = weights(trainer)
    changed = {name.split(".")[-2] for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"q_proj", "down_proj"}
    groups = [
        PromptReplies(g.prompt_ids, [s.response_ids for s in g.samples]) for g in random_batch(9).groups
    ]
    tokens = sum(len(reply) for group in groups for reply in group.replies)
    merged = Forward(trainer.plain_copy(), temperature=1.0)
    adapted = trainer.forward.log_probs(trainer.forward.pack(groups, 4096), tokens)
    assert torch.allclose(merged.log_probs(merged.pack(groups, 4096), tokens), adapted, atol=1e-4)


@pytest.mark.process
def test_two_ranks_train_the_adapters_of_one_and_their_checkpoint_resumes_on_one(tmp_path: Path) -> None:
    one = make(Ranks())
    start = weights(one)
    for seed in range(3):
        one.step(random_batch(seed))

    def work(ranks: Ranks) -> dict[str, torch.Tensor]:
        trainer = make(ranks)
        for seed in range(2):
            trainer.step(random_batch(seed))
        save(tmp_path, trainer, 2, ranks=ranks)
        trainer.step(random_batch(2))
        return weights(trainer)

    moved = distance(weights(one), start)
    for found in on_ranks(2, work):
        assert distance(found, weights(one)) < 1e-3 * moved
    resumed = make(Ranks())
    state = resumed.state_dict()
    load_checkpoint(tmp_path / "checkpoints" / "step-2").read_into(state)
    resumed.load_state_dict(state)
    resumed.step(random_batch(2))
    assert distance(weights(resumed), weights(one)) < 1e-3 * moved
    assert size(start) > 0


def test_a_target_that_the_model_lacks_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"`qkv_proj`; did you mean `.*_proj`\?; it has .*q_proj"):
        add_adapters(tiny_llama(), LoraSection(targets=("qkv_proj",)), seed=0)
