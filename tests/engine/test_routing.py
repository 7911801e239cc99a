"""The experts that an engine returns with its replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.served_stand_in import StandIn, listening
from tests.trainer.tiny_models import tiny_moe
from whetstone.core.errors import UserError
from whetstone.core.sample import Routing
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.factory import build_engine, check_capabilities
from whetstone.engine.served.vllm import read_routing
from whetstone.engine.settings import EngineSection
from whetstone.engine.torch_engine import TorchEngine

Build = Callable[..., Any]


class Endless:
    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


def moe(seed: int) -> Any:
    model: Any = tiny_moe(seed=seed).eval()
    model.generation_config.eos_token_id = None
    return model


def request(prompt: list[int], tokens: int, n: int = 1, **more: Any) -> GenerationRequest:
    return GenerationRequest(prompt, Sampling(max_tokens=tokens), n, 5, **{"routing": True, **more})


async def replies(engine: Any, asked: GenerationRequest) -> list[Completion]:
    return sorted([one async for one in engine.generate(asked)], key=lambda one: one.index)


def routing_of(reply: Completion) -> Routing:
    assert reply.routing is not None
    return reply.routing


def test_each_reply_has_the_experts_of_its_own_tokens_whatever_else_runs() -> None:
    async def one_by_one() -> list[Completion]:
        engine = TorchEngine(moe(0), Endless(), max_batch=1)
        return [(await replies(engine, asked))[0] for asked in (request([3, 4, 5], 7), request([6], 3))]

    async def together() -> list[Completion]:
        engine = TorchEngine(moe(0), Endless(), max_batch=8)
        others = [request([9] * 6, 5, 3, routing=False), request([3, 4, 5], 7), request([6], 3)]
        return [found[0] for found in await asyncio.gather(*(replies(engine, each) for each in others))]

    alone, crowd = asyncio.run(one_by_one()), asyncio.run(together())
    assert crowd[0].routing is None
    assert [each.token_ids for each in crowd[1:]] == [each.token_ids for each in alone]
    assert [routing_of(each) for each in crowd[1:]] == [routing_of(each) for each in alone]
    assert [routing_of(each).tokens for each in alone] == [3 + 7 - 1, 1 + 3 - 1]


def test_tokens_after_an_update_have_the_experts_of_the_new_weights() -> None:
    async def story() -> Completion:
        engine = TorchEngine(moe(0), Endless())
        waiting = asyncio.ensure_future(replies(engine, request([3, 4], 40)))
        await asyncio.sleep(0.01)
        await engine.update_weights(moe(1).named_parameters(), 1)
        return (await waiting)[0]

    found = asyncio.run(story())
    assert routing_of(found).tokens == 41
    before = found.versions.count(0)
    assert len(routing_of(found).part(0, 2 + before).data) == 4 * (2 + before)


def test_a_closed_engine_returns_partial_replies() -> None:
    async def story() -> list[Completion]:
        engine = TorchEngine(moe(0), Endless(), max_batch=1)
        waiting = asyncio.ensure_future(replies(engine, request([3, 4], 500, 2)))
        await asyncio.sleep(0.05)
        await engine.close()
        return await waiting

    running, never = asyncio.run(story())
    assert running.finish_reason == "abort"
    if running.token_ids:
        assert routing_of(running).tokens == 2 + len(running.token_ids) - 1
    assert never.routing is None


def _until_writing(server: StandIn, replies: int) -> None:
    with server.changed:
        assert server.changed.wait_for(lambda: server.writing == replies, 30)


def served(server: StandIn, build_model: Build, tokenizer: Any, **more: Any) -> Any:
    section = EngineSection(kind=server.kind, options={"url": server.url})
    return build_engine(section, lambda: build_model("llama"), tokenizer, **more)


@pytest.mark.process
def test_a_reply_of_vllm_that_an_update_divided_has_the_experts_of_every_token(
    build_model: Build, tokenizer: Any
) -> None:
    async def story(server: StandIn) -> None:
        engine = served(server, build_model, tokenizer, routing=True)
        check_capabilities(engine, EngineSection(kind="vllm"), repeatable=False, tensors=True, routing=True)
        server.hold = 2
        task = asyncio.create_task(replies(engine, request([5, 10], 6, 2)))
        await asyncio.to_thread(_until_writing, server, 2)
        server.hold = None
        await engine.update_weights(list(build_model("llama").named_parameters()), 1)
        for got in await task:
            read = [5, 10, *got.token_ids[:-1]]
            expected = torch.tensor([[[token, layer] for layer in (0, 1)] for token in read])
            assert routing_of(got) == Routing(
                2, 2, True, expected.to(torch.int16).numpy().astype("<u2").tobytes()
            )
        (other,) = await replies(engine, request([5, 10], 3, routing=False))
        assert other.routing is None
        await engine.close()
        assert server.faults == []

    with listening(StandIn("vllm")) as server:
        server.routes = True
        asyncio.run(asyncio.wait_for(story(server), 60))


@pytest.mark.process
def test_a_truncated_reply_of_vllm_has_experts_and_supports(build_model: Build, tokenizer: Any) -> None:
    async def story(server: StandIn) -> None:
        engine = served(server, build_model, tokenizer, routing=True, truncated=True)
        params = Sampling(max_tokens=4, top_p=0.9)
        asked = GenerationRequest([5, 10], params, routing=True, supports=True)
        (got,) = await replies(engine, asked)
        assert routing_of(got).tokens == 2 + 4 - 1
        assert all(token in support for token, support in zip(got.token_ids, got.supports, strict=True))
        await engine.close()
        assert server.faults == []

    with listening(StandIn("vllm")) as server:
        server.routes = server.supports = True
        server.dtype = "float32"
        asyncio.run(asyncio.wait_for(story(server), 60))


@pytest.mark.process
def test_servers_without_experts_are_refused_with_the_way_out(build_model: Build, tokenizer: Any) -> None:
    with listening(StandIn("vllm")) as server:
        with pytest.raises(UserError, match=r"routing_replay.*start it as .*--enable-return-routed-experts"):
            served(server, build_model, tokenizer, routing=True)
        without = served(server, build_model, tokenizer)
        assert not without.capabilities.routing
    with listening(StandIn("sglang")) as server:
        engine = served(server, build_model, tokenizer, routing=True)
        with pytest.raises(UserError, match=r"`sglang` does not return .*`engine\.kind: torch` or `vllm`"):
            check_capabilities(
                engine, EngineSection(kind="sglang"), repeatable=False, tensors=True, routing=True
            )


@pytest.mark.parametrize("text", ["", "AAAA", "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY4Jywg"])
def test_other_texts_are_no_experts(text: str) -> None:
    with pytest.raises((ValueError, EOFError)):
        read_routing(text)
