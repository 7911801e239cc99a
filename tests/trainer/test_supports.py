"""Top-p and top-k in training: engine and trainer have log-probs over the tokens that could be sampled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from msgspec import structs

from tests.trainer.test_checkpoints import tokenizer
from tests.trainer.tiny_models import VOCABULARY, random_batch, tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.torch_engine import TorchEngine
from whetstone.engine.weights import copy_model
from whetstone.environments.conversation import Conversation, Reply
from whetstone.environments.prompt import Prompt
from whetstone.trainer.forward import Forward
from whetstone.trainer.minibatch import MiniBatch, make_minibatches
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

SPEC = algorithm_named("grpo", {})


def log_probs(forward: Forward, batch: Batch) -> tuple[MiniBatch, torch.Tensor]:
    """The only mini-batch of a batch, and the trainer's log-probs of its tokens."""
    [data] = make_minibatches(batch, SPEC, count=1, max_tokens=400)
    packed = [each.only_predicting(data.written) for each in forward.pack(data.groups, 1000)]
    return data, forward.log_probs(packed, data.tokens, data.supports)


async def drawn(engine: TorchEngine, params: Sampling, n: int) -> list[Completion]:
    request = GenerationRequest([3, 4, 5], params, n=n, seed=1, supports=True)
    return sorted([one async for one in engine.generate(request)], key=lambda one: one.index)


@pytest.mark.parametrize("truncation", [{"top_p": 0.8}, {"top_k": 5}, {"top_p": 0.9, "top_k": 7}])
def test_the_ratio_of_engine_and_trainer_is_one(truncation: dict[str, Any]) -> None:
    model, temperature = tiny_llama(), 0.9
    params = Sampling(max_tokens=200, temperature=temperature, **truncation)
    replies = asyncio.run(drawn(TorchEngine(copy_model(model), tokenizer()), params, 8))
    samples = [
        Sample(
            one.token_ids, one.logprobs, one.versions, "length", "",
            reward=float(one.index % 2), supports=one.supports,
        )
        for one in replies
    ]  # fmt: skip
    batch = Batch([Group("0", [3, 4, 5], samples)])
    forward = Forward(model, temperature=temperature)
    data, own = log_probs(forward, batch)
    assert data.tokens > 300
    ratios = (own - data.engine_log_probs).exp()
    assert abs(float(ratios.mean()) - 1) < 0.001
    assert float((ratios - 1).abs().max()) < 0.001
    # Over the whole vocabulary the trainer's would be those of another policy.
    whole = Batch([Group("0", [3, 4, 5], [structs.replace(sample, supports=[]) for sample in samples])])
    assert float((log_probs(forward, whole)[1] - data.engine_log_probs).exp().mean()) < 0.95


def with_supports(batch: Batch, seed: int) -> Batch:
    """Give most tokens a random support."""
    made = torch.Generator().manual_seed(seed)

    def support(token: int) -> list[int]:
        size = int(torch.randint(0, 6, (1,), generator=made))
        others = torch.randperm(VOCABULARY, generator=made)[:size].tolist()
        return sorted({token, *others}) if size else []

    groups = [
        structs.replace(
            group,
            samples=[
                structs.replace(sample, supports=[support(token) for token in sample.response_ids])
                for sample in group.samples
            ],
        )
        for group in batch.groups
    ]
    return Batch(groups)


def expected_log_probs(model: Any, batch: Batch, temperature: float) -> torch.Tensor:
    """Each token by the model's own logits, those outside of its support left out."""
    found: list[torch.Tensor] = []
    for group in batch.groups:
        for sample in group.samples:
            ids = torch.tensor([[*group.prompt_ids, *sample.response_ids]])
            logits = model(input_ids=ids).logits[0, len(group.prompt_ids) - 1 : -1].float() / temperature
            for row, token, support in zip(logits, sample.response_ids, sample.supports, strict=True):
                kept = row[support] if support else row
                found.append(row[token] - kept.logsumexp(-1))
    return torch.stack(found)


@pytest.mark.parametrize("logits_per_chunk", [0, 3 * VOCABULARY])
def test_values_and_gradients_are_those_of_the_remaining_logits(logits_per_chunk: int) -> None:
    model, other = tiny_llama(), tiny_llama()
    batch = with_supports(random_batch(2, groups=3, replies=4), 5)
    forward = Forward(model, temperature=0.7, logits_per_chunk=logits_per_chunk)
    data, own = log_probs(forward, batch)
    expected = expected_log_probs(other, batch, 0.7)
    assert torch.allclose(own, expected, atol=1e-5)
    slopes = torch.randn(data.tokens, generator=torch.Generator().manual_seed(0))
    for each in forward.pack(data.groups, 1000):
        for scores in forward.scores(each.only_predicting(data.written), supports=data.supports):
            # Of the truncated distribution, which is never negative and not more than its support allows.
            assert bool(((scores.entropies > -1e-6) & torch.isfinite(scores.entropies)).all())
            (scores.log_probs * slopes[scores.places]).sum().backward()
    (expected * slopes).sum().backward()
    for (name, mine), (_, its) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert mine.grad is not None, name
        assert its.grad is not None, name
        assert torch.allclose(mine.grad, its.grad, atol=1e-4), name


def test_a_step_with_supports_trains() -> None:
    model = tiny_llama()
    before = [parameter.clone() for parameter in model.parameters()]
    settings = TrainerSection(minibatches=2, lr=1e-3)
    trained = Trainer(model, SPEC, settings, temperature=1.0, max_tokens=400)
    metrics = trained.step(with_supports(random_batch(0), 1))
    assert all(value == value for value in metrics.values())
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_cross_entropy_is_that_of_the_whole_vocabulary() -> None:
    batch = random_batch(2, groups=3, replies=4)
    trained = [
        Trainer(
            tiny_llama(), algorithm_named("ssd", {}), TrainerSection(lr=1e-3), temperature=0.7, max_tokens=400
        )
        for _ in range(2)
    ]
    whole, truncated = (
        trainer.step(each) for trainer, each in zip(trained, (batch, with_supports(batch, 5)), strict=True)
    )
    assert whole == truncated
    assert whole["tokens"] > 0


def test_the_supports_of_several_turns_are_those_of_the_written_tokens() -> None:
    def reply(ids: list[int], supports: list[list[int]]) -> Reply:
        completion = Completion(0, ids, [-1.0] * len(ids), [0] * len(ids), "stop", supports=supports)
        return Reply(0, "text", "stop", len(ids), 0, drawn=completion)

    async def send(*_: Any) -> Any:
        return [7, 8], reply([9], [[9, 10]])

    async def talk(first: Reply) -> Sample:
        conversation = Conversation(Prompt("p", prefix="", chat=False), [1, 2], first, send)
        await conversation.send("more")
        return conversation.sample(reward=1.0)

    sample = asyncio.run(talk(reply([5, 6], [[5], [5, 6]])))
    assert sample.response_ids == [5, 6, 7, 8, 9]
    assert sample.supports == [[5], [5, 6], [], [], [9, 10]]
    batch = Batch([Group("0", [1, 2], [sample, structs.replace(sample, reward=0.0)])])
    [data] = make_minibatches(batch, SPEC, count=1, max_tokens=400)
    assert data.supports is not None
    assert data.supports.ids.tolist() == [5, 5, 6, 9, 10] * 2
    assert data.supports.counts.tolist() == [1, 2, 2] * 2
    with pytest.raises(ValueError, match="5 tokens, 1 supports"):
        structs.replace(sample, supports=[[5]])
