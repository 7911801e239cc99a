"""The learning rate of every step, and the memory of activations."""

import pytest
import torch

from tests.trainer.tiny_models import random_batch, tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.trainer.optimizer import learning_rate
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 0.775, 0.55, 0.325, 0.1, 0.1]),
        ("cosine", [0.5, 1.0, 0.8682, 0.55, 0.2318, 0.1, 0.1]),
    ],
)
def test_the_rate_rises_and_falls_as_the_recipe_says(decay, expected):
    settings = TrainerSection(lr=1.0, steps=6, warmup_steps=2, lr_decay=decay, lr_end=0.1)
    rates = [learning_rate(settings, step) for step in range(7)]
    assert rates == pytest.approx(expected, abs=1e-4)
    longer = settings.model_copy(update={"steps": 50, "lr_decay_steps": 6})
    assert [learning_rate(longer, step) for step in range(7)] == rates


def test_activation_checkpointing_keeps_the_gradient_and_fewer_activations():
    found = []
    for on in (False, True):
        trainer = Trainer(
            tiny_llama(num_hidden_layers=4),
            algorithm_named("dr_grpo"),
            TrainerSection(activation_checkpointing=on),
            temperature=1.0,
            max_tokens=12,
        )
        kept = 0

        def pack(tensor):
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            metrics = trainer.step(random_batch(1))
        found.append((metrics["grad_norm"], kept))
    (norm, all_kept), (same, few) = found
    assert same == pytest.approx(norm, rel=1e-5)
    assert few < all_kept / 2
