"""What implementations get wrong: identities of every algorithm, and where two of them must differ."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.trainer.tiny_models import first_gradients, random_batch, sample, tiny_llama
from tests.trainer.written_out import POLICY_GRADIENTS, said_by
from whetstone.algorithm.algorithm import Algorithm, Losses, LossInputs
from whetstone.algorithm.loss import token_weights
from whetstone.algorithm.named import algorithm_named
from whetstone.algorithm.presets.m2po import first_removed, winsor_cap
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group
from whetstone.trainer.meter import histogram, quantile
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

MAX_TOKENS = 12


def plain(preset: str, **settings: Any) -> Algorithm:
    """Without what is no part of the policy gradient."""
    return algorithm_named(preset, {"overlong_buffer": 0, "kl_coef": 0, **settings})


def honest(batch: Batch) -> Batch:
    """The same replies with the log-probs that the trainer's own weights give them."""
    model, groups = tiny_llama(), []
    with torch.no_grad():
        for group in batch.groups:
            said = [said_by(model, group, s.response_ids, 0.8)[0].tolist() for s in group.samples]
            pairs = zip(group.samples, said, strict=True)
            groups.append(
                msgspec.structs.replace(
                    group, samples=[msgspec.structs.replace(s, logprobs=logs) for s, logs in pairs]
                )
            )
    return Batch(groups)


def gradients(spec: Algorithm, batch: Batch, **settings: Any):
    """The gradients of the first update, and the metrics; the weights stay."""
    trainer = Trainer(
        tiny_llama(),
        spec,
        TrainerSection(**settings),
        temperature=0.8,
        max_tokens=MAX_TOKENS,
    )
    return first_gradients(trainer, batch, applied=False)


def near(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 1e-5) -> bool:
    largest = max(float(g.abs().max()) for g in b.values())
    return largest > 1e-4 and all(
        torch.allclose(a[n], b[n], atol=tolerance * largest, rtol=tolerance) for n in b
    )


def policy_gradient(spec: Algorithm, batch: Batch) -> dict[str, torch.Tensor]:
    """Of -A log p with the advantages and weights that the algorithm says, and nothing else of it."""

    class Plain(Algorithm):
        def loss(self, inputs: LossInputs):
            return Losses(-inputs.advantages * inputs.log_probs, {})

    plain = Plain(advantage=spec.advantage, whiten=spec.whiten, aggregation=spec.aggregation)
    return gradients(plain, batch)[0]


@pytest.mark.parametrize("preset", [name for name in POLICY_GRADIENTS if name != "rloo"])
def test_on_policy_every_algorithm_is_the_policy_gradient_with_its_own_normalisation(preset):
    batch = honest(random_batch(1))
    found, metrics = gradients(plain(preset), batch)
    assert metrics["clip_fraction"] == 0
    assert near(found, policy_gradient(plain(preset), batch))


def test_on_policy_rloo_is_the_policy_gradient_of_whole_replies():
    """A * sum of log p, a mean over replies: `fixed_length` times the length that it divides by."""
    batch = random_batch(1)
    spec = plain("dr_grpo", advantage="leave_one_out")
    expected = {n: g * MAX_TOKENS for n, g in policy_gradient(spec, batch).items()}
    assert near(gradients(plain("rloo"), batch)[0], expected)


@pytest.mark.parametrize("preset", POLICY_GRADIENTS)
def test_the_split_into_micro_batches_changes_nothing(preset):
    """With mismatched engine log-probs and two updates, so that masks and corrections do something."""
    spec = algorithm_named(preset, {"overlong_buffer": 0})
    batch = random_batch(2, groups=3)
    whole = gradients(spec, batch, minibatches=2)[0]
    for tokens in (1, 25):
        assert near(gradients(spec, batch, minibatches=2, micro_batch_tokens=tokens)[0], whole), tokens


@pytest.mark.parametrize("preset", [n for n in POLICY_GRADIENTS if n != "reinforce_pp"])
def test_equal_rewards_teach_nothing(preset):
    batch = Batch([Group("a", [3, 4], [sample([5, 6], 0.1), sample([7], 0.1), sample([8, 9, 10], 0.1)])])
    found, _ = gradients(plain(preset), batch)
    assert all(not g.any() for g in found.values())


def test_without_a_baseline_of_the_group_equal_rewards_teach_when_other_groups_differ():
    good = Group("a", [3, 4], [sample([5, 6], 1.0), sample([7], 1.0)])
    bad = Group("b", [5, 3], [sample([8, 9], 0.0), sample([4], 0.0)])
    found, _ = gradients(plain("reinforce_pp"), Batch([good, bad]))
    assert any(g.abs().max() > 1e-4 for g in found.values())


def inputs(log_ratio: list[float], advantages: list[float], against: str = "old") -> LossInputs:
    """One reply whose ratio is given, against the step's start or against the engine."""
    count = torch.tensor([len(log_ratio)])
    log_probs = torch.full((len(log_ratio),), -2.0, dtype=torch.float64, requires_grad=True)
    other = log_probs.detach() - torch.tensor(log_ratio, dtype=torch.float64)
    old, engine = (other, log_probs.detach()) if against == "old" else (log_probs.detach(), other)
    given = torch.tensor(advantages, dtype=torch.float64)
    weights = token_weights(count, "token_mean", 9).repeat_interleave(count)
    replies = torch.zeros(len(log_ratio), dtype=torch.long)
    return LossInputs(log_probs, old, engine, None, -other, given, weights, replies, count, True)


def slope(spec: Algorithm, data: LossInputs) -> list[float]:
    still = replace(data, log_probs=data.log_probs.detach())
    data = replace(data, prepared=spec.prepare(still))
    return torch.autograd.grad(spec.loss(data).tokens.sum(), data.log_probs)[0].tolist()


def test_cispo_has_a_gradient_where_ppo_has_none():
    data = inputs([math.log(9.0), math.log(0.1)], [1.0, -1.0])
    assert slope(algorithm_named("dapo"), data) == [0.0, 0.0]
    assert slope(algorithm_named("cispo"), data) == pytest.approx([-5.0, 0.1])


def test_gspo_says_the_same_by_reply_and_by_token():
    """One ratio a reply, or sg(s) p / sg(p) a token: the same gradient where A is one for the reply."""
    data = inputs([2e-4, -1e-4, 3e-4], [1.0] * 3)
    by_token = data.reply_mean(data.log_probs - data.old).detach() + data.log_probs - data.log_probs.detach()
    expected = torch.autograd.grad((-by_token.exp() * data.advantages).mean(), data.log_probs)[0]
    found = [value / 3 for value in slope(algorithm_named("gspo"), data)]
    assert found == pytest.approx(expected.tolist(), rel=1e-12)


def test_m2pos_mask_shrinks_as_its_budget_grows():
    data = inputs([0.1 * i for i in range(1, 11)] + [-3.0], [1.0] * 11, against="engine")
    masked = [
        slope(algorithm_named("m2po", {"budget": budget}), data).count(0.0) for budget in (1e-4, 0.04, 0.1, 1)
    ]
    # The last token pulls back towards the engine, so it is never held.
    assert masked == [10, 8, 6, 0]


def test_with_one_update_m2po_is_the_unclipped_policy_gradient_of_stale_replies():
    batch = random_batch(3)
    spec = plain("m2po", budget=1e9)

    class Unclipped(Algorithm):
        def loss(self, inputs: LossInputs):
            return Losses(-(inputs.log_probs - inputs.engine).exp() * inputs.advantages, {})

    assert near(gradients(spec, batch)[0], gradients(Unclipped(aggregation="token_mean"), batch)[0])
    assert gradients(plain("m2po"), batch)[1]["clip_fraction"] > 0


def test_equal_values_go_together_so_that_the_order_of_tokens_decides_nothing():
    values = torch.tensor([0.01, 0.09, 0.09, 0.09]).double()
    assert first_removed(values, 0.04) == pytest.approx(0.09)
    assert first_removed(values, 0.08) == math.inf
    assert first_removed(values[:0], 0.04) == winsor_cap(values[:0], 0.04) == math.inf
    assert winsor_cap(values, 0.04) == pytest.approx(0.05)


def test_a_reply_that_is_computed_in_two_parts_is_refused_where_it_is_needed_whole():
    rope = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 10000.0}
    model = tiny_llama(max_position_embeddings=64, rope_parameters=rope)
    settings: dict[str, Any] = {"temperature": 1.0, "max_tokens": MAX_TOKENS}
    with pytest.raises(UserError, match="needs whole replies"):
        Trainer(model, plain("gspo"), TrainerSection(), **settings)
    Trainer(model, plain("dapo"), TrainerSection(), **settings)


def test_the_page_lists_every_metric_of_a_step():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:loss/)?([a-z0-9_]+)`", page))
    named |= {f"ratio{name}" for name in named if name.startswith("_")}
    for spec in (plain("archer", correction="tis", kl_coef=0.1), plain("dapo", correction="icepop")):
        assert set(gradients(spec, random_batch(5), epochs=2)[1]) <= named


@pytest.mark.parametrize("spread", [1e-3, 0.1, 4.0])
def test_quantiles_of_counted_ratios_are_those_of_the_sorted_ones(spread):
    values = spread * torch.randn(5000, generator=torch.Generator().manual_seed(0))
    counts = torch.stack([histogram(part) for part in values.split(700)]).sum(0)
    for share in (0.01, 0.5, 0.99):
        exact = float(values.sort().values[round(share * 4999)])
        assert quantile(counts, share) == pytest.approx(exact, rel=0.01, abs=1e-5 + spread * 5e-3)
    assert quantile(histogram(torch.zeros(9)), 0.99) == 0.0
