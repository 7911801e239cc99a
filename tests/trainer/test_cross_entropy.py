"""The cross-entropies of replies: their values and gradients in float64, and which replies they train on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from tests.trainer.test_algorithm_traps import MAX_TOKENS, gradients
from tests.trainer.tiny_models import random_batch, tiny_llama
from tests.trainer.written_out import CROSS_ENTROPIES, said_by
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group, Sample
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer


def mixed_batch(seed: int = 1) -> Batch:
    """Accepted and refused replies, some without a verdict, one that the engine gave up, and given tokens."""
    groups: list[Group] = []
    for number, group in enumerate(random_batch(seed, groups=3, replies=6).groups):
        found = [(True, 1.0, "stop"), (False, 0.0, "stop"), (None, None, "stop")]
        found += [(True, 0.4, "length"), (None, None, "abort"), (False, 0.0, "length")]
        samples = [
            msgspec.structs.replace(sample, accepted=accepted, reward=reward, finish_reason=finish)
            for sample, (accepted, reward, finish) in zip(group.samples, found, strict=True)
        ]
        if number == 0 and len(samples[0].response_ids) > 2:
            samples[0] = msgspec.structs.replace(samples[0], given=[(0, 1)])
        groups.append(msgspec.structs.replace(group, samples=samples))
    return Batch(groups)


def kept(preset: str, sample: Sample) -> bool:
    return sample.accepted is True if preset == "rejection_sft" else sample.finish_reason != "abort"


def reference(batch: Batch, preset: str, aggregation: str) -> tuple[float, dict[str, torch.Tensor], int]:
    """The loss of softmax(logits) without a temperature, its gradients, and the number of tokens."""
    model = tiny_llama(torch.float64)
    losses: list[torch.Tensor] = []
    for group in batch.groups:
        for sample in group.samples:
            if kept(preset, sample):
                log_probs, _ = said_by(model, group, sample.response_ids, 1.0)
                losses.append(-log_probs[torch.tensor(sample.written())])
    every = torch.cat(losses)
    value = (
        every.mean() if aggregation == "token_mean" else torch.stack([one.mean() for one in losses]).mean()
    )
    value.backward()
    named = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return float(value.detach()), named, len(every)


@pytest.mark.parametrize("settings", [{}, {"micro_batch_tokens": 20}, {"logits_per_chunk": 61 * 3}])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("preset", CROSS_ENTROPIES)
def test_values_and_gradients_are_those_of_the_model_without_a_temperature(
    preset: str, aggregation: str, settings: dict[str, Any]
) -> None:
    batch = mixed_batch()
    value, expected, tokens = reference(batch, preset, aggregation)
    # `gradients` trains with a sampling temperature of 0.8.
    found, metrics = gradients(algorithm_named(preset, {"aggregation": aggregation}), batch, **settings)
    assert metrics["loss"] == pytest.approx(value, rel=1e-5)
    assert metrics["tokens"] == tokens
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert torch.allclose(found[name].double(), gradient, atol=1e-5 * largest, rtol=1e-4), name


def test_the_two_presets_differ_in_the_replies_that_they_train_on() -> None:
    counts = {preset: gradients(algorithm_named(preset), mixed_batch())[1] for preset in CROSS_ENTROPIES}
    assert {preset: metrics["replies"] for preset, metrics in counts.items()} == {
        "ssd": 15.0,
        "rejection_sft": 6.0,
    }


def test_a_batch_without_an_accepted_reply_makes_no_update() -> None:
    refused = Batch(
        [
            msgspec.structs.replace(
                group, samples=[msgspec.structs.replace(s, accepted=False) for s in group.samples]
            )
            for group in random_batch(2).groups
        ]
    )
    found, metrics = gradients(algorithm_named("rejection_sft"), refused)
    assert found == {}
    assert (metrics["updates"], metrics["replies"]) == (0.0, 0.0)


def test_the_log_probs_of_the_engine_do_not_matter() -> None:
    """The engine reports those under the sampling temperature, also for tokens of the very same weights."""
    fresh = Batch(
        [
            msgspec.structs.replace(
                group,
                samples=[msgspec.structs.replace(s, versions=[0] * len(s.versions)) for s in group.samples],
            )
            for group in random_batch(3).groups
        ]
    )
    _, metrics = gradients(algorithm_named("ssd"), fresh)
    assert not {"engine_gap", "logprob_gap", "engine_kl"} & metrics.keys()
    with pytest.raises(UserError, match="max_engine_gap"):
        gradients(algorithm_named("grpo"), fresh)


def test_training_raises_the_probability_of_the_replies() -> None:
    settings = TrainerSection(lr=1e-3, epochs=2, minibatches=2)
    trainer = Trainer(tiny_llama(), algorithm_named("ssd"), settings, temperature=1.6, max_tokens=MAX_TOKENS)
    losses = [trainer.step(mixed_batch())["loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]
