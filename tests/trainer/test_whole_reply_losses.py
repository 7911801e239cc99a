"""Loss and gradients of every algorithm, off-policy, against the formulas written out in float64."""

import itertools

import msgspec
import pytest
import torch
from transformers import PreTrainedModel

from tests.trainer.tiny_models import VOCABULARY, random_batch, tiny_llama
from tests.trainer.written_out import POLICY_GRADIENTS, rows_of, written_out
from whetstone.algorithm.algorithm import Algorithm, Losses, LossInputs
from whetstone.algorithm.named import algorithm_class, algorithm_named
from whetstone.core.sample import Batch, Group
from whetstone.trainer.forward import Forward
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

MAX_TOKENS = 12
OFF_POLICY = {
    "overlong_buffer": 0,
    "clip_low": 0.1,
    "clip_high": 0.15,
    "reasoning_clip_low": 0.2,
    "reasoning_clip_high": 0.3,
    "reasoning_kl_coef": 0.05,
    "ratio_cap": 1.1,
    "budget": 1.0,
}
"""Bounds that some of the tokens here are beyond, and others are not."""


def off_policy(preset: str, **settings: object) -> Algorithm:
    fields = algorithm_class(preset).model_fields
    known = {key: value for key, value in OFF_POLICY.items() if key in fields}
    return algorithm_named(preset, {**known, **settings})


def nearby_policy(seed: int) -> PreTrainedModel:
    """The weights that a ratio or a penalty refers to: close by, so that some tokens are clipped."""
    model = tiny_llama(torch.float64)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return model


def drawn(seed: int) -> Batch:
    """Replies with log-probs that an engine might report, some far from the trainer's."""
    draw = torch.Generator().manual_seed(seed)
    groups = []
    for group in random_batch(seed, groups=2).groups:
        samples = []
        for sample in group.samples:
            noise = (4 * torch.rand(len(sample.response_ids), generator=draw) + 2).tolist()
            samples.append(msgspec.structs.replace(sample, logprobs=[-value for value in noise]))
        groups.append(Group(group.problem_id, group.prompt_ids, samples))
    return Batch(groups)


def trained(batch: Batch, algorithm: Algorithm, chunk: int | None, limit: int):
    """The gradient of the first of two updates of a step that began with the earlier policy; its metrics."""
    settings = TrainerSection(epochs=2, micro_batch_tokens=limit)
    trainer = Trainer(tiny_llama(), algorithm, settings, temperature=0.8, max_tokens=MAX_TOKENS)
    # The optimizer takes no float64, so it keeps the fp32 model and is never asked for an update.
    policy = tiny_llama(torch.float64)
    trainer.forward = Forward(policy, temperature=0.8, logits_per_chunk=VOCABULARY * (chunk or 0))
    trainer.forward.log_probs = Forward(nearby_policy(3), temperature=0.8).log_probs
    if trainer._reference is not None:
        trainer._reference = Forward(nearby_policy(4), temperature=0.8)
    caught: dict[str, torch.Tensor] = {}

    def catch(lr):
        for name, parameter in policy.named_parameters():
            assert parameter.grad is not None
            caught.setdefault(name, parameter.grad.clone())
        return 0.0

    trainer.optimizer.update = catch
    return caught, trainer.step(batch)


def expect_the_formula(algorithm: Algorithm, chunk: int | None, limit: int) -> dict[str, float]:
    batch, policy = drawn(1), tiny_llama(torch.float64)
    rows = rows_of(batch, policy, nearby_policy(3), nearby_policy(4), 0.8)
    value = written_out(rows, algorithm, MAX_TOKENS)
    value.backward()
    found, metrics = trained(batch, algorithm, chunk, limit)
    assert metrics["loss"] == pytest.approx(float(value.detach()), rel=1e-5, abs=1e-7)
    expected = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in expected.values())
    assert largest > 1e-3
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5 * largest, rtol=1e-5), name
    return metrics


@pytest.mark.drawn(14)
@pytest.mark.parametrize(("chunk", "limit"), [(None, 4096), (3, 4096), (2, 20)])
@pytest.mark.parametrize("preset", POLICY_GRADIENTS)
def test_off_policy_gradients_are_those_of_the_formulas(preset, chunk, limit):
    metrics = expect_the_formula(off_policy(preset), chunk, limit)
    assert 0 < metrics["clip_fraction"] < 1


@pytest.mark.parametrize("variant", ["algorithm_1", "winsor", "astraflow"])
@pytest.mark.parametrize("budget", [0.001, 0.4, 100.0])
def test_every_reading_of_m2po_is_that_of_its_formula(variant, budget):
    metrics = expect_the_formula(off_policy("m2po", variant=variant, budget=budget), 2, 20)
    # Only astraflow has bounds where the budget is kept anyway.
    assert metrics["clip_fraction"] > 0 or (budget == 100.0 and variant != "astraflow")


EXTRAS = [
    {"correction": "tis"},
    {"correction": {"kind": "icepop", "low": 0.5, "high": 2.0}},
    *({"kl_coef": 0.1, "kl_estimate": f"k{k}", "kl_in": at} for k in (1, 2, 3) for at in ("loss", "reward")),
    {"entropy_coef": 0.05},
    {"dual_clip": 1.05},
    {"whiten": True},
    {"aggregation": "fixed_length", "advantage": "leave_one_out"},
]


@pytest.mark.parametrize(
    ("preset", "extra"),
    [*itertools.product(["dapo"], EXTRAS), *itertools.product(["gspo"], EXTRAS[:3]), ("archer", EXTRAS[4])],
)
def test_options_of_every_algorithm_follow_their_formula(preset, extra):
    metrics = expect_the_formula(off_policy(preset, **extra), 2, 20)
    assert ("kl" in metrics) == bool(off_policy(preset, **extra).needs_reference)


def test_corrections_count_the_bounded_tokens():
    truncated = trained(drawn(1), off_policy("dapo", correction="tis"), None, 4096)[1]
    masked = trained(drawn(1), off_policy("dapo", correction="icepop"), None, 4096)[1]
    assert 0 < truncated["importance_truncated"] < 1
    assert 0 < masked["importance_masked"] < 1
    assert truncated["importance"] == masked["importance"] > 0


class _Scalar(Algorithm):
    def loss(self, inputs: LossInputs) -> Losses:
        return Losses(inputs.log_probs.sum(), {})


def test_a_loss_of_another_shape_than_its_tokens_is_refused():
    with pytest.raises(ValueError, match=r"_Scalar` has the shape \(\); return one value for each"):
        trained(drawn(1), _Scalar(), None, 4096)


class _Recording(Algorithm):
    def loss(self, inputs: LossInputs) -> Losses:
        SEEN.append(inputs)
        return Losses(-inputs.advantages * inputs.log_probs, {})


SEEN: list[LossInputs] = []


def test_a_loss_sees_whole_replies_and_all_log_probs_whatever_the_chunks():
    SEEN.clear()
    trained(drawn(2), _Recording(kl_coef=0.1), 2, 20)
    assert len(SEEN) > 2
    for inputs in SEEN:
        counts = torch.bincount(inputs.replies, minlength=len(inputs.lengths))
        present = counts > 0
        assert torch.equal(counts[present], inputs.lengths[present])
        columns = [inputs.old, inputs.engine, inputs.reference, inputs.entropies, inputs.weights]
        assert all(column is not None and column.shape == inputs.log_probs.shape for column in columns)
        assert inputs.entropies.min() > 0
        assert not inputs.entropies.requires_grad
