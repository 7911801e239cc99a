"""Recorded experts are those that the trainer computes with; their weights are the model's own, with
gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn import functional

from tests.trainer.test_training_step import gradients
from tests.trainer.tiny_models import VOCABULARY, random_batch, routed, sample, tiny_llama, tiny_moe
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group, Routing, Sample
from whetstone.rollout.group_facts import decode_group, encode_group
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

T = 0.8


def trainer(model: Any = None, **settings: Any) -> Trainer:
    settings = {"lr": 1e-3, "grad_clip": 1e9, "max_engine_gap": 0.0, "routing_replay": True, **settings}
    spec = algorithm_named("dr_grpo", {"overlong_buffer": 0})
    section = TrainerSection(**settings)
    return Trainer(model or tiny_moe(), spec, section, temperature=T, max_tokens=12)


def experts_of(routing: Routing) -> Tensor:
    return torch.tensor(list(routing.data), dtype=torch.long).view(-1, 2, 2)


def written_out(model: Any, group: Group, reply: Sample) -> Tensor:
    """Log-probs of a reply by a forward pass of its own, in which each router is the formula of the paper:
    the softmax over the scores of the recorded experts."""
    assert reply.routing is not None
    prompt = reply.prompt_routing or group.prompt_routing
    assert prompt is not None
    chosen = torch.cat([experts_of(prompt), experts_of(reply.routing)])
    for number, layer in enumerate(model.model.layers):

        def route(hidden: Tensor, router: Any = layer.mlp.gate, number: int = number) -> Any:
            scores = functional.linear(hidden, router.weight)
            recorded = torch.zeros_like(scores).scatter(1, chosen[:, number], 1.0).bool()
            probabilities = scores.masked_fill(~recorded, -torch.inf).softmax(-1)
            return scores, probabilities.gather(1, chosen[:, number]), chosen[:, number]

        layer.mlp.gate.forward = route
    prompt_ids = reply.prompt_ids or group.prompt_ids
    ids = torch.tensor([[*prompt_ids, *reply.response_ids]])
    logits = model(ids[:, :-1], use_cache=False).logits[0, len(prompt_ids) - 1 :] / T
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt_ids) :, None])[:, 0]


def from_the_engine(batch: Batch) -> Batch:
    """The samples, with the log-probs of an engine whose routers chose the recorded experts."""

    def scored(group: Group, reply: Sample) -> Sample:
        with torch.no_grad():
            found = written_out(tiny_moe(), group, reply)
        return replace(reply, logprobs=found.tolist(), versions=[0] * len(found))

    groups = [replace(g, samples=[scored(g, s) for s in g.samples]) for g in batch.groups]
    return replace(batch, groups=groups)


@pytest.mark.parametrize("attention", ["packed", "model"])
@pytest.mark.parametrize("tokens", [1, 4096], ids=["rows of one reply", "one row"])
def test_the_trainer_replays_the_experts_of_the_engine(attention: str, tokens: int) -> None:
    batch = from_the_engine(routed(random_batch(3)))
    found = trainer(attention=attention, micro_batch_tokens=tokens).step(batch)
    assert found["logprob_gap_max"] < 2e-5
    assert found["outside"] == 0
    without = trainer(attention=attention, micro_batch_tokens=tokens, routing_replay=False).step(batch)
    assert without["logprob_gap"] > 0.02
    assert without["outside"] > 0.1


@pytest.mark.parametrize("settings", [{}, {"activation_checkpointing": True}, {"micro_batch_tokens": 20}])
def test_gradients_are_those_of_the_recorded_experts(settings: dict[str, Any]) -> None:
    batch = routed(random_batch(5, groups=2))
    model: Any = tiny_moe()
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    tokens = 2 * len(batch.groups[0].samples) * 12
    for group in batch.groups:
        mean = sum(group.rewards()) / len(group.samples)
        for reply in group.samples:
            assert reply.reward is not None
            loss = -(reply.reward - mean) * written_out(model, group, reply).sum() / tokens
            loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            expected[name] = parameter.grad
    found = gradients(trainer(**settings), batch)
    assert expected["model.layers.0.mlp.gate.weight"].norm() > 0
    for name, gradient in found.items():
        assert (gradient - expected[name]).norm() <= 2e-5 * expected[name].norm() + 1e-7, name


def test_experts_survive_the_way_of_a_group_to_its_trainer() -> None:
    [group] = routed(random_batch(1, groups=1)).groups
    assert decode_group(encode_group(group)) == group
    plain = random_batch(1, groups=1).groups[0]
    added = len(encode_group(group)) - len(encode_group(plain))
    tokens = len(group.prompt_ids) + sum(len(s.response_ids) - 1 for s in group.samples)
    assert 4 * tokens <= added <= 4 * tokens + 40 * (1 + len(group.samples))


def test_a_sample_with_a_prompt_of_its_own_has_the_experts_of_that_prompt() -> None:
    group = routed(random_batch(4, groups=1)).groups[0]
    other = routed(random_batch(6, groups=1)).groups[0]
    moved = [
        replace(s, prompt_ids=other.prompt_ids, prompt_routing=other.prompt_routing)
        for s in other.samples[:2]
    ]
    batch = from_the_engine(Batch([replace(group, samples=[*group.samples[:2], *moved])]))
    assert trainer().step(batch)["logprob_gap_max"] < 2e-5


def test_messages_after_the_last_reply_need_no_experts() -> None:
    batch = from_the_engine(routed(random_batch(7, groups=1)))
    group = batch.groups[0]
    expected = trainer().step(batch)

    def continued(reply: Sample) -> Sample:
        length = len(reply.response_ids)
        return replace(
            reply,
            response_ids=[*reply.response_ids, 9, 8, 7],
            logprobs=[*reply.logprobs, 0.0, 0.0, 0.0],
            versions=[*reply.versions, 0, 0, 0],
            given=[(length, length + 3)],
        )

    later = Batch([replace(group, samples=[continued(s) for s in group.samples])])
    assert trainer().step(later) == pytest.approx(expected, abs=1e-6)


def test_a_reply_without_experts_is_refused_with_the_way_out() -> None:
    batch = routed(random_batch(1, groups=1))
    [group] = batch.groups
    cut = group.samples[1].routing
    assert cut is not None
    for samples, prompt in (
        ([replace(s, routing=None) for s in group.samples], group.prompt_routing),
        ([replace(s, routing=s.routing and s.routing.part(1)) for s in group.samples], group.prompt_routing),
        (group.samples, None),
    ):
        broken = Batch([replace(group, samples=samples, prompt_routing=prompt)])
        with pytest.raises(UserError, match=r"routing_replay: the engine returned no experts .* set it to"):
            trainer().step(broken)
    with pytest.raises(UserError, match="`llama` has no layers with experts"):
        trainer(tiny_llama())


@pytest.mark.parametrize("layers", [1, 2])
def test_experts_of_another_model_are_refused(layers: int) -> None:
    ids = [5, 6, 7]
    rows = Routing(layers, 2, False, bytes([0, 200 if layers == 2 else 1]) * (2 * layers))
    reply = replace(sample(ids, 1.0), routing=rows)
    worse = replace(sample(ids, 0.0), routing=rows)
    group = Group("a", [3, 4], [reply, worse], prompt_routing=rows)
    with pytest.raises(UserError, match=r"recorded with another model.*2 layers and 4 experts"):
        trainer().step(Batch([group]))


def test_more_than_256_experts_take_two_bytes() -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    sizes: Any = {
        "vocab_size": VOCABULARY, "hidden_size": 8, "moe_intermediate_size": 4, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 300,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    model: Any = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes)).eval()
    routers = trainer(model).forward.routers
    assert routers is not None
    with torch.no_grad():
        _, rows = routers.record(lambda: model(torch.arange(40)[None]))
    assert int(rows.max()) > 255
    found = routers.routing(rows.numpy().tobytes())
    assert found is not None
    assert (found.tokens, found.wide, len(found.data)) == (40, True, 160)
    assert torch.equal(routers.read(found), rows)
