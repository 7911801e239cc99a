"""Supervised warm-up: plain cross-entropy on reply tokens, and a model that can be trained further."""

import pytest
import torch

from tests.trainer.tiny_models import random_batch, tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer
from whetstone.trainer.warmup import sft

BATCH = [([3, 4, 5], [6, 7, 2]), ([3, 8], [9, 2]), ([10], [11, 12, 13, 2])]


def test_loss_is_the_mean_cross_entropy_of_reply_tokens():
    model = tiny_llama()
    total, count = 0.0, 0
    with torch.no_grad():
        for prompt, reply in BATCH:
            rows = model(torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
            total += float(torch.nn.functional.cross_entropy(rows, torch.tensor(reply), reduction="sum"))
            count += len(reply)
    for limit in (1, 8, 1000):
        (loss,) = sft(tiny_llama(), [BATCH], rate=lambda _: 1e-3, micro_batch_tokens=limit)
        assert loss == pytest.approx(total / count, rel=1e-5)


def test_a_batch_can_be_learned_by_heart():
    model = tiny_llama()
    seen = []
    losses = sft(
        model,
        [BATCH] * 60,
        rate=lambda step: 1e-2 * min(1.0, (step + 1) / 5),
        on_step=lambda i, loss: seen.append((i, loss)),
    )
    assert seen == list(enumerate(losses))
    assert losses[-1] < 0.1 < losses[0]
    prompt, reply = BATCH[2]
    with torch.no_grad():
        rows = model(torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
    assert rows.argmax(-1).tolist() == reply


def test_a_warmed_up_model_goes_on_to_reinforcement_learning_undisturbed():
    warmed = tiny_llama()
    sft(warmed, [BATCH] * 3, rate=lambda _: 1e-3)
    fresh = tiny_llama()
    fresh.load_state_dict(warmed.state_dict())
    steps = [
        Trainer(model, algorithm_named("dr_grpo"), TrainerSection(), temperature=1.0, max_tokens=9).step(
            random_batch()
        )
        for model in (warmed, fresh)
    ]
    assert steps[0] == steps[1]


def test_a_batch_without_reply_tokens_is_refused():
    with pytest.raises(ValueError, match="at least one reply token"):
        sft(tiny_llama(), [[([3], [])]], rate=lambda _: 1e-3)
