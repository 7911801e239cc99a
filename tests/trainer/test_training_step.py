"""A training step: the gradient it must have, whatever the packing, and what it may not train on."""

import copy
import math
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.trainer.tiny_models import VOCABULARY, first_gradients, random_batch, sample, tiny_llama
from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

MAX_TOKENS = 12


def make(
    spec: Algorithm | None = None, layout=None, temperature=0.8, dtype=torch.float32, **settings: Any
) -> Trainer:
    settings = {"lr": 1e-2, "grad_clip": 1e9} | settings
    spec = spec or algorithm_named("dapo", {"overlong_buffer": 0})
    trainer = Trainer(
        tiny_llama(dtype), spec, TrainerSection(**settings), temperature=temperature, max_tokens=MAX_TOKENS
    )
    if layout:
        trainer.forward.layout = layout
    return trainer


def gradients(trainer: Trainer, batch: Batch) -> dict[str, torch.Tensor]:
    return first_gradients(trainer, batch)[0]


def naive_gradients(batch: Batch, spec: Algorithm, temperature: float) -> dict[str, torch.Tensor]:
    """Policy gradient with plain per-sequence forwards and a loop over the formulas, in float64."""
    model = tiny_llama().double()
    rows: list[torch.Tensor] = []
    for group in batch.groups:
        rewards = torch.tensor([s.reward for s in group.samples if s.reward is not None]).double()
        if len(rewards) < 2:
            continue
        for s in group.samples:
            if s.reward is None or not s.response_ids:
                continue
            advantage = s.reward - float(rewards.mean())
            if spec.advantage == "group_std":
                advantage /= float(rewards.std()) + 1e-6
            prompt = s.prompt_ids or group.prompt_ids
            logits = model(torch.tensor([[*prompt, *s.response_ids]])).logits[0] / temperature
            picked = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            log_p = picked.gather(1, torch.tensor(s.response_ids)[:, None])[:, 0]
            log_p = log_p[torch.tensor(s.trainable(batch.oldest))]
            if len(log_p):
                rows.append(-advantage * log_p)
    loss = {
        "token_mean": lambda: torch.cat(rows).sum() / sum(len(r) for r in rows),
        "sequence_mean": lambda: torch.stack([r.mean() for r in rows]).mean(),
        "fixed_length": lambda: torch.cat(rows).sum() / (len(rows) * MAX_TOKENS),
    }[spec.aggregation]()
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def conversations() -> Batch:
    """Groups in which samples hold given tokens, at all places, or answer prompts of their own."""
    batch = random_batch(3)
    spans = [[(0, 1)], [(1, 2), (3, 4)], [], [(2, 3)]]
    groups = []
    for group in batch.groups:
        fit = [
            [(a, b) for a, b in spans[i % 4] if b <= len(s.response_ids) - (a == 0)]
            for i, s in enumerate(group.samples)
        ]
        own = [[], [5, 6, 7], [5, 6, 7], [9]]
        samples = [replace(s, given=fit[i], prompt_ids=own[i % 4]) for i, s in enumerate(group.samples)]
        groups.append(replace(group, samples=samples))
    return Batch(groups)


def close(a, b, tolerance=2e-5):
    return all(torch.allclose(a[n].double(), b[n].double(), atol=tolerance, rtol=1e-3) for n in a)


def equal_weights(a: Trainer, b: Trainer) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return all(torch.equal(x[name], y[name]) for name in x)


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo"])
def test_gradient_is_that_of_the_formulas_written_out(preset):
    spec = algorithm_named(preset, {"overlong_buffer": 0})
    batch = random_batch(1)
    # At the first step the policy is the reference, where k3 has neither value nor gradient.
    assert close(gradients(make(spec), batch), naive_gradients(batch, spec, 0.8))


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo"])
def test_given_tokens_carry_no_loss_and_are_in_no_denominator(preset):
    spec, batch = algorithm_named(preset, {"overlong_buffer": 0}), conversations()
    assert any(s.given and s.length for g in batch.groups for s in g.samples)
    expected = naive_gradients(batch, spec, 0.8)
    for layout in ("shared_prefix", "padded"):
        assert close(gradients(make(spec, layout, micro_batch_tokens=24), batch), expected)
    metrics = make(spec, minibatches=2).step(batch)
    assert metrics["tokens"] == sum(s.length for g in batch.groups for s in g.samples)


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo"])
def test_tokens_that_are_too_old_carry_no_loss_and_their_rewards_stay_in_the_baseline(preset):
    """Some replies begin with older weights, and one group has a reply that is too old as a whole."""
    spec, batch = algorithm_named(preset, {"overlong_buffer": 0}), conversations()
    groups = [
        replace(
            group,
            samples=[
                replace(s, versions=[4 + (place >= 2 * (i % 3)) for place in range(len(s.response_ids))])
                for i, s in enumerate(group.samples[:-1])
            ]
            + [replace(group.samples[-1], versions=[4] * len(group.samples[-1].response_ids))],
        )
        for group in batch.groups
    ]
    aged = Batch(groups, oldest=5)
    expected = naive_gradients(aged, spec, 0.8)
    assert not close(naive_gradients(Batch(groups), spec, 0.8), expected)
    for layout in ("shared_prefix", "padded"):
        assert close(gradients(make(spec, layout, micro_batch_tokens=24), aged), expected)
    metrics = make(spec, minibatches=2).step(aged)
    assert metrics["tokens"] == sum(sum(s.trainable(5)) for g in groups for s in g.samples)
    assert not any(groups[0].samples[-1].trainable(5))


def test_given_tokens_have_no_log_probs_that_count():
    """Whatever stands at their places: neither updates nor metrics know of it."""
    spec, batch = algorithm_named("m2po", {"overlong_buffer": 0}), conversations()

    def marked(s):
        at = [p if w else -50.0 for p, w in zip(s.logprobs, s.written(), strict=True)]
        return replace(s, logprobs=at)

    other = Batch([replace(g, samples=[marked(s) for s in g.samples]) for g in batch.groups])
    one, two = make(spec, minibatches=2), make(spec, minibatches=2)
    assert one.step(batch) == two.step(other)
    assert equal_weights(one, two)


@pytest.mark.parametrize("layout", ["shared_prefix", "padded"])
@pytest.mark.parametrize("micro_batch_tokens", [1, 13, 40, 4096])
@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "dapo"])
def test_gradient_does_not_depend_on_micro_batches_or_layout(preset, micro_batch_tokens, layout):
    spec = algorithm_named(preset, {"overlong_buffer": 0})
    batch = random_batch(2, groups=2)
    whole = gradients(make(spec), batch)
    split = gradients(make(spec, layout, micro_batch_tokens=micro_batch_tokens), batch)
    assert any(g.abs().max() > 1e-3 for g in whole.values())
    assert close(whole, split)


def test_gradient_does_not_depend_on_the_chunks_of_logits():
    batch = random_batch(3)
    whole = gradients(make(), batch)
    assert close(whole, gradients(make(logits_per_chunk=3 * VOCABULARY), batch))


def test_the_gradient_of_a_token_that_occurs_often_is_summed_in_fp32():
    """In bf16 a sum of many equal terms stops growing; only the embedding's own kernel can add so few."""
    prompt, often = [3] * 1500, 3
    samples = [sample([5, 6, 7], 0.0), sample([8, 9, 10], 1.0)]
    batch = Batch([Group("0", prompt, samples)])
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_llama(torch.bfloat16, tie_word_embeddings=False).to(dtype)  # pyright: ignore[reportArgumentType]
        spec = algorithm_named("dapo", {"overlong_buffer": 0})
        settings = TrainerSection(lr=1e-2, grad_clip=1e9)
        trainer = Trainer(model, spec, settings, temperature=0.8, max_tokens=MAX_TOKENS)
        found[dtype] = gradients(trainer, batch)["model.embed_tokens.weight"][often]
    exact = found[torch.float32]
    assert float((found[torch.bfloat16] - exact).norm() / exact.norm()) < 0.1


def test_one_update_has_a_ratio_of_exactly_one():
    metrics = make(dtype=torch.bfloat16).step(random_batch(4))
    assert metrics["ratio_max"] == 1.0
    assert metrics["clip_fraction"] == 0.0


def test_several_updates_keep_the_ratio_against_the_start_of_the_step():
    metrics = make(lr=3e-2, epochs=3, minibatches=2).step(random_batch(4))
    assert metrics["updates"] == 6
    assert metrics["ratio_max"] > 1.0
    assert metrics["clip_fraction"] > 0.0


def test_the_old_log_probs_path_gives_the_same_first_gradient_as_the_detach_trick():
    batch = random_batch(5)
    whole = gradients(make(), batch)
    first = gradients(make(epochs=2), batch)
    assert close(whole, first)


def test_groups_of_equal_rewards_change_no_weight():
    batch = Batch([Group("a", [3, 4], [sample([5, 6], 0.1), sample([7], 0.1), sample([8, 9, 10], 0.1)])])
    trainer = make()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    metrics = trainer.step(batch)
    assert metrics["grad_norm"] == 0.0
    assert metrics["tokens"] == 6
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_samples_without_reward_change_no_bit():
    batch = random_batch(6, groups=2)
    noisy = Batch(
        [Group(g.problem_id, g.prompt_ids, [*g.samples, sample([9, 9, 9], None)]) for g in batch.groups]
        + [Group("lonely", [3], [sample([5], 1.0), sample([6], None)])]
        + [Group("failed", [3], [sample([5], None), sample([6], None)])]
    )
    clean, dirty = make(), make()
    assert clean.step(batch) == dirty.step(noisy)
    assert equal_weights(clean, dirty)


def test_empty_replies_count_in_the_baseline_only():
    with_empty = Batch([Group("a", [3, 4], [sample([5, 6], 1.0), sample([], 0.0), sample([7], 0.0)])])
    spec = algorithm_named("dapo", {"overlong_buffer": 0})
    assert close(gradients(make(), with_empty), naive_gradients(with_empty, spec, 0.8))


def test_masked_truncated_replies_shape_the_baseline_but_not_the_weights():
    cut = Batch([Group("a", [3], [sample([5, 6], 1.0), sample([7], 0.0), sample([8] * 9, 0.0, "length")])])
    trainer = make(algorithm_named("dr_grpo", {"mask_truncated": True}))
    metrics = trainer.step(cut)
    assert metrics["tokens"] == 3
    advantages = [2 / 3, -1 / 3]
    expected = -(2 * advantages[0] + 1 * advantages[1]) / (2 * MAX_TOKENS)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)


def test_masked_truncated_replies_may_be_left_out_of_the_baseline():
    cut = Batch([Group("a", [3], [sample([5, 6], 1.0), sample([7], 0.0), sample([8] * 9, 0.0, "length")])])
    spec = algorithm_named("dr_grpo", {"mask_truncated": True, "truncated_in_baseline": False})
    metrics = make(spec).step(cut)
    assert metrics["tokens"] == 3
    assert metrics["loss"] == pytest.approx(-(2 * 0.5 + 1 * -0.5) / (2 * MAX_TOKENS), rel=1e-5)


def test_the_overlong_penalty_is_part_of_the_reward():
    spec = algorithm_named("dapo", {"overlong_buffer": 4, "advantage": "group_mean"})
    batch = Batch([Group("a", [3], [sample([5] * 10, 1.0), sample([6] * 2, 1.0)])])
    # 10 of 12 tokens with a buffer of 4 cost half a point: rewards 0.5 and 1, advantages -0.25 and 0.25.
    assert make(spec).step(batch)["loss"] == pytest.approx(-(10 * -0.25 + 2 * 0.25) / 12, rel=1e-5)


def test_an_overlong_buffer_longer_than_the_replies_is_the_users_error():
    with pytest.raises(UserError, match=r"algorithm\.overlong_buffer.*4096.*sampling\.max_tokens"):
        make(algorithm_named("dapo"))


def test_a_batch_in_which_nothing_carries_loss_makes_a_version_but_no_update():
    trainer = make(warmup_steps=2)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    metrics = trainer.step(Batch([Group("a", [3], [sample([5], None)])]))
    assert metrics == {"lr": 5e-3, "tokens": 0, "replies": 0, "updates": 0, "skipped": 0}
    assert trainer.version == 1
    assert trainer.step(Batch([]))["lr"] == 1e-2
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_the_kl_term_pulls_towards_the_weights_the_trainer_was_made_with():
    batch = random_batch(7)
    strong, none = (
        make(algorithm_named("grpo", {"kl_coef": 5.0})),
        make(algorithm_named("grpo", {"kl_coef": 0.0})),
    )
    reference = copy.deepcopy(strong.model)
    first = strong.step(batch)
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)
    none.step(batch)
    for _ in range(4):
        last = strong.step(batch)
        assert "kl" not in none.step(batch)
    assert last["kl"] > 0.0

    def distance(trainer):
        pairs = zip(trainer.model.parameters(), reference.parameters(), strict=True)
        return math.sqrt(sum(float((a - b).detach().pow(2).sum()) for a, b in pairs))

    assert distance(strong) < distance(none)


def exact(batch: Batch, versions: list[int]) -> Batch:
    """The replies with the log-probs of the weights that trainers begin with here, and these versions."""
    probe = make()
    group = batch.groups[0]
    replies = []
    for s, version in zip(group.samples, versions, strict=True):
        with torch.no_grad():
            logits = probe.model(torch.tensor([[*group.prompt_ids, *s.response_ids]])).logits[0] / 0.8
        rows = logits.log_softmax(-1)[len(group.prompt_ids) - 1 : -1]
        said = rows.gather(1, torch.tensor(s.response_ids)[:, None])[:, 0].tolist()
        marked = [version] * len(said)
        replies.append(type(s)(s.response_ids, said, marked, "stop", "", reward=s.reward))
    return Batch([Group("a", group.prompt_ids, replies)])


def test_engine_gap_is_measured_against_the_weights_before_the_update():
    trainer = make(epochs=2, max_engine_gap=0)
    batch = exact(random_batch(8, groups=1, replies=2), [0, -1])
    replies = batch.groups[0].samples
    replies[0].logprobs[0] += 0.5
    replies[1].logprobs[0] += 0.7
    first, tokens = (sum(len(s.response_ids) for s in some) for some in (replies[:1], replies))
    metrics = trainer.step(batch)
    assert metrics["logprob_gap_max"] == pytest.approx(0.7, abs=1e-4)
    assert metrics["logprob_gap"] == pytest.approx(1.2 / tokens, abs=1e-4)
    # That of other weights is no fault of the engine's.
    assert metrics["engine_gap"] == pytest.approx(0.5 / first, abs=1e-4)


def test_an_engine_that_draws_from_another_distribution_is_refused():
    batch = exact(random_batch(8, groups=1, replies=2), [0, 0])
    for reply in batch.groups[0].samples:
        reply.logprobs[:] = [value - 0.2 for value in reply.logprobs]
    trainer = make()
    with pytest.raises(UserError, match=r"0\.200 nats off.*`trainer.max_engine_gap` is 0\.1"):
        trainer.step(batch)
    assert make(max_engine_gap=0).step(batch)["engine_gap"] == pytest.approx(0.2, abs=1e-4)


def test_training_raises_the_probability_of_rewarded_replies():
    trainer = make(algorithm_named("dr_grpo"), lr=3e-3)
    good, bad = [5, 6, 7], [8, 9, 10]
    batch = Batch([Group("a", [3, 4], [sample(good, 1.0), sample(bad, 0.0)])])

    @torch.no_grad()
    def log_p(reply):
        rows = trainer.model(torch.tensor([[3, 4, *reply]])).logits[0].log_softmax(-1)[1:4]
        return float(rows.gather(1, torch.tensor(reply)[:, None]).sum())

    before = log_p(good) - log_p(bad)
    for _ in range(5):
        trainer.step(batch)
    assert log_p(good) - log_p(bad) > before + 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_inputs_give_the_same_bits(dtype):
    one, two = make(dtype=dtype, minibatches=2), make(dtype=dtype, minibatches=2)
    for seed in range(2):
        assert one.step(random_batch(seed)) == two.step(random_batch(seed))
    assert equal_weights(one, two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resuming_from_the_state_gives_the_same_next_step_bit_for_bit(dtype):
    def build():
        spec = algorithm_named("grpo", {"kl_coef": 0.1})
        return make(spec, dtype=dtype, epochs=2, minibatches=2, warmup_steps=3, weight_decay=0.1)

    going = build()
    going.step(random_batch(0))
    saved = {name: tensor.clone() for name, tensor in going.state_dict().items()}
    resumed = build()
    resumed.load_state_dict(saved)
    assert resumed.version == 1
    assert going.step(random_batch(1)) == resumed.step(random_batch(1))
    assert equal_weights(going, resumed)
    pairs: Any = zip(going.weights(), resumed.weights(), strict=True)
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


def test_a_fresh_state_can_be_saved_and_loaded_too():
    one, two = make(), make()
    two.step(random_batch(0))
    two.load_state_dict({name: tensor.clone() for name, tensor in one.state_dict().items()})
    assert one.step(random_batch(1)) == two.step(random_batch(1))
    assert equal_weights(one, two)


def test_deterministic_mode_makes_torch_refuse_unrepeatable_operations():
    trainer = Trainer(
        tiny_llama(),
        algorithm_named("dr_grpo"),
        TrainerSection(),
        temperature=1.0,
        max_tokens=MAX_TOKENS,
        deterministic=True,
    )
    assert torch.are_deterministic_algorithms_enabled()
    assert trainer.step(random_batch(0))["updates"] == 1
