"""Every family with experts: the engine returns those that processed each token, and the trainer computes
with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.families.test_families import Endless
from tests.families.tiny_families import FAMILIES, tiny_family
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.expert_routing import ExpertRouters, has_experts
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies

WITH_EXPERTS = [
    *("qwen3_moe", "qwen2_moe", "mixtral", "gpt_oss", "granitemoe"),
    *("deepseek_v2", "deepseek_v3", "glm4_moe"),
]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain_choice(model: Any, ids: list[int]) -> Tensor:
    """The experts that the model chooses for a sequence without a cache: [tokens, layers, k]."""
    with torch.no_grad():
        return ExpertRouters(model).record(lambda: model(torch.tensor([ids]), use_cache=False))[1]


def generated(model: Any, *requests: GenerationRequest) -> list[list[Completion]]:
    async def replies(engine: TorchEngine, request: GenerationRequest) -> list[Completion]:
        return sorted([done async for done in engine.generate(request)], key=lambda done: done.index)

    async def all_replies() -> list[list[Completion]]:
        model.generation_config.eos_token_id = None
        engine = TorchEngine(model, Endless(), max_batch=3)
        return await asyncio.gather(*(replies(engine, request) for request in requests))

    return asyncio.run(all_replies())


def test_the_families_with_experts_are_known() -> None:
    assert {name for name in FAMILIES if has_experts(tiny_family(name))} == set(WITH_EXPERTS)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_a_recording_is_the_choice_of_the_model_and_replaying_it_changes_nothing(family: str) -> None:
    model = tiny_family(family)
    requests = [
        GenerationRequest([3, 4, 5, 6, 7], Sampling(max_tokens=9), 4, 3, routing=True),
        GenerationRequest([9], Sampling(max_tokens=4), 2, 4, routing=True),
        GenerationRequest([9, 8], Sampling(max_tokens=4)),
    ]
    found = generated(model, *requests)
    assert found[2][0].routing is None
    forward = Forward(model, temperature=1.0, routing_replay=True)
    assert forward.routers is not None
    groups: list[PromptReplies] = []
    for request, replies in zip(requests[:2], found[:2], strict=True):
        rows: list[Tensor] = []
        for reply in replies:
            assert reply.routing is not None
            rows.append(forward.routers.read(reply.routing))
            expected = plain_choice(model, [*request.prompt_ids, *reply.token_ids[:-1]])
            # In whichever order the router lists them.
            assert torch.equal(rows[-1].sort(-1).values, expected.sort(-1).values)
        prompt = len(request.prompt_ids)
        routing = (rows[0][:prompt], [each[prompt:] for each in rows])
        groups.append(PromptReplies(request.prompt_ids, [reply.token_ids for reply in replies], routing))
    tokens = sum(len(ids) for group in groups for ids in group.replies)
    replayed = forward.log_probs(forward.pack(groups, 30), tokens)
    plain = [PromptReplies(group.prompt_ids, group.replies) for group in groups]
    assert torch.allclose(replayed, forward.log_probs(forward.pack(plain, 30), tokens), atol=1e-6)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_experts_that_the_model_would_not_choose_have_weights_and_gradients(family: str) -> None:
    """Also those of a group of experts that the router would have excluded."""
    model = tiny_family(family)
    routers = ExpertRouters(model)
    ids = torch.tensor([[3, 4, 5, 6, 7, 8]])
    with torch.no_grad():
        output, chosen = routers.record(lambda: model(ids, use_cache=False))
    others = (chosen + 1) % 4
    with routers.replay(others.transpose(0, 1)):
        logits = model(ids, use_cache=False).logits
    assert (logits - output.logits).abs().max() > 1e-3
    logits.log_softmax(-1)[..., 5].sum().backward()
    layer, used = model.base_model.layers[-1], others[:, -1].unique()
    block = layer.block_sparse_moe if family == "granitemoe" else layer.mlp
    gradients = block.experts.down_proj.grad
    assert all(gradients[number].norm() > 0 for number in used.tolist())
    router = block.gate if hasattr(block, "gate") else block.router
    assert router.weight.grad.norm() > 0


def test_a_model_without_experts_is_refused() -> None:
    model = tiny_family("llama")
    with pytest.raises(UserError, match=r"no layers with experts.*`trainer\.routing_replay` to false"):
        generated(model, GenerationRequest([3], Sampling(max_tokens=2), routing=True))
    with pytest.raises(UserError, match="`llama` has no layers with experts"):
        Forward(model, temperature=1.0, routing_replay=True)


def test_routers_that_choose_in_another_way_are_refused() -> None:
    model = tiny_family("mixtral")
    for layer in model.model.layers:
        layer.mlp.gate.forward = lambda hidden: (None, hidden[:, :2].abs(), hidden[:, :2].long() * 0)
    with pytest.raises(UserError, match="`mixtral` choose experts in an unknown way"):
        Forward(model, temperature=1.0, routing_replay=True)
