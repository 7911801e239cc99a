"""Weight updates, closing, leaving, failures and bad requests of the embedded engine."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.torch_engine import TorchEngine

Build = Callable[..., Any]
PROMPT = [10, 20, 30, 40]


async def collect(engine: TorchEngine, request: GenerationRequest) -> list[Completion]:
    return [reply async for reply in engine.generate(request)]


def request(max_tokens: int, n: int = 1, seed: int = 0) -> GenerationRequest:
    return GenerationRequest(PROMPT, Sampling(max_tokens=max_tokens), n=n, seed=seed)


def endless(build_model: Build, seed: int = 0) -> Any:
    """A model whose replies end by length only."""
    model = build_model("llama", seed=seed)
    model.generation_config.eos_token_id = None
    return model


@pytest.fixture
def plain_tokenizer(tokenizer: Any) -> Any:
    """The byte tokenizer without an end token."""
    plain = copy.deepcopy(tokenizer)
    plain.eos_token = None
    return plain


def first_logprob(model: Any, token: int) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    return float(torch.log_softmax(logits, -1)[token])


def test_new_weights_take_effect_in_flight_and_mark_each_token(
    build_model: Build, plain_tokenizer: Any
) -> None:
    model, other = endless(build_model), endless(build_model, seed=1)
    original = endless(build_model)
    engine = TorchEngine(model, plain_tokenizer, max_batch=3)

    async def run() -> tuple[Completion, list[Completion], list[Completion]]:
        long = asyncio.create_task(collect(engine, request(60)))
        await asyncio.sleep(0)
        # Two of six run at a time, so the last two start well after the update.
        group = engine.generate(request(8, n=6, seed=5))
        early = [await anext(group)]
        await engine.update_weights(other.state_dict().items(), 7)
        assert engine.version == 7
        early += [reply async for reply in group]
        return (await long)[0], early, await collect(engine, request(3, seed=9))

    reply, group, later = asyncio.run(run())
    switch = reply.versions.index(7)
    assert 0 < switch < 60
    assert reply.versions == [0] * switch + [7] * (60 - switch)
    ids = torch.tensor([PROMPT + reply.token_ids])
    with torch.no_grad():
        scores = torch.log_softmax(original(input_ids=ids).logits[0, len(PROMPT) - 1 : -1], -1)
    old = scores.gather(-1, torch.tensor(reply.token_ids)[:, None]).squeeze(-1)
    assert reply.logprobs[:switch] == pytest.approx(old[:switch].tolist(), abs=2e-4)
    assert (old[switch:] - torch.tensor(reply.logprobs[switch:])).abs().mean() > 0.1
    last = next(r for r in group if r.index == 5)
    assert set(last.versions) == {7}
    # The waiting replies' prompt was read anew: nothing of the old weights is left in it.
    assert last.logprobs[0] == pytest.approx(first_logprob(other, last.token_ids[0]), abs=2e-4)
    assert later[0].logprobs[0] == pytest.approx(first_logprob(other, later[0].token_ids[0]), abs=2e-4)


def test_the_oldest_weights_of_a_request_are_known_before_it_ends(
    build_model: Build, plain_tokenizer: Any
) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer, max_batch=1)
    other = endless(build_model, seed=1).state_dict()

    async def run() -> None:
        first, second = request(40), request(5, seed=2)
        running, waiting = engine.generate(first), engine.generate(second)
        # One of both runs at a time.
        reading = asyncio.ensure_future(anext(running))
        while engine.oldest_version(first) == engine.version:
            await engine.update_weights(other.items(), engine.version + 1)
        oldest, version = engine.oldest_version(first), engine.version
        assert oldest < version == engine.oldest_version(second)
        assert (await reading).versions[0] == oldest
        assert (await anext(waiting)).versions[0] >= version
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing model.norm.weight"),
        (lambda w: w.update({"model.extra": torch.zeros(1)}), "no tensor `model.extra`"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(3)}), r"shape \(3,\), the model's is \(64,\)"),
        (lambda w: w.update({"model.norm.weight": [1.0] * 64}), "a list, not a tensor"),
        (lambda w: w.update({"lm_head.weight": torch.zeros(300, 64)}), "tied, but their values differ"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(
    change: Callable[[dict[str, Any]], Any], message: str, build_model: Build, tokenizer: Any
) -> None:
    model = build_model("llama")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given: dict[str, Any] = {name: tensor + 1 for name, tensor in before.items()}
    change(given)
    engine = TorchEngine(model, tokenizer)
    with pytest.raises(ValueError, match=message):
        asyncio.run(engine.update_weights(given.items(), 1))
    assert engine.version == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_parameters_of_a_wider_dtype_are_cast_and_tied_names_stay_tied(
    build_model: Build, tokenizer: Any
) -> None:
    model = build_model("llama", dtype=torch.bfloat16)
    masters = build_model("llama", seed=3)
    asyncio.run(TorchEngine(model, tokenizer).update_weights(masters.named_parameters(), 1))
    assert torch.equal(model.lm_head.weight, masters.lm_head.weight.bfloat16())
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_close_aborts_running_and_waiting_replies(build_model: Build, plain_tokenizer: Any) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer, max_batch=2)

    async def run() -> list[list[Completion]]:
        running = [asyncio.create_task(collect(engine, request(500, n=3, seed=s))) for s in range(2)]
        await collect_one_step(engine)
        await engine.close()
        await engine.close()
        return await asyncio.gather(*running)

    async def collect_one_step(engine: TorchEngine) -> None:
        # The update runs after at least one step, since both share the worker thread in order.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.update_weights(endless(build_model).state_dict().items(), 1)

    replies = [reply for group in asyncio.run(run()) for reply in group]
    assert [reply.finish_reason for reply in replies] == ["abort"] * 6
    assert sum(bool(reply.token_ids) for reply in replies) == 2
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(collect(engine, request(1)))


def test_a_caller_that_leaves_frees_its_places(build_model: Build, plain_tokenizer: Any) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer, max_batch=1)

    async def run() -> Completion:
        left = asyncio.create_task(collect(engine, request(400, n=50)))
        await asyncio.sleep(0.01)
        left.cancel()
        return (await collect(engine, request(2, seed=1)))[0]

    reply = asyncio.run(run())
    alone = asyncio.run(collect(TorchEngine(endless(build_model), plain_tokenizer), request(2, seed=1)))
    assert reply == alone[0]


def test_a_cancelled_request_does_not_disturb_the_others(build_model: Build, plain_tokenizer: Any) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer)

    async def run() -> list[Completion]:
        left = asyncio.create_task(collect(engine, request(400, n=2)))
        stays = asyncio.create_task(collect(engine, request(20, n=2, seed=1)))
        await collect(engine, request(1, seed=2))  # it ends with the first step, in which all three were
        left.cancel()
        return await stays

    replies = {reply.index: reply.token_ids for reply in asyncio.run(run())}
    alone = asyncio.run(collect(TorchEngine(endless(build_model), plain_tokenizer), request(20, n=2, seed=1)))
    assert replies == {reply.index: reply.token_ids for reply in alone}


def test_a_failing_model_fails_every_caller_and_not_the_next(build_model: Build, tokenizer: Any) -> None:
    model = build_model("llama")
    sound = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    engine = TorchEngine(model, tokenizer, max_batch=1)

    async def run() -> list[Any]:
        with torch.no_grad():
            model.model.norm.weight.fill_(float("nan"))
        failed = await asyncio.gather(
            *(collect(engine, request(5, seed=s)) for s in range(3)), return_exceptions=True
        )
        await engine.update_weights(sound.items(), 1)
        return [*failed, await collect(engine, request(5))]

    *failed, replies = asyncio.run(run())
    assert all(isinstance(f, FloatingPointError) for f in failed)
    assert replies[0].versions[0] == 1


def test_an_engine_outlives_an_event_loop_that_was_cut_off(build_model: Build, plain_tokenizer: Any) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer)

    async def leave_midway() -> None:
        engine.generate(request(400, n=2))
        await asyncio.sleep(0)  # the first step is under way when the loop ends

    asyncio.run(leave_midway())
    (reply,) = asyncio.run(collect(engine, request(4)))
    assert len(reply.token_ids) == 4


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "n", "message"),
    [
        ([1] * 20, 13, 1, "20 tokens and up to 13 new ones exceed the context of 32"),
        ([], 5, 1, "prompt is empty"),
        ([1, 300], 5, 1, "outside the model's vocabulary of 300"),
        ([1], 5, 0, "at least one reply"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(
    prompt: list[int], max_tokens: int, n: int, message: str, build_model: Build, tokenizer: Any
) -> None:
    engine = TorchEngine(build_model("llama"), tokenizer, max_context=32)
    bad = GenerationRequest(prompt, Sampling(max_tokens=max_tokens), n=n)
    with pytest.raises(UserError, match=message):
        asyncio.run(collect(engine, bad))


def test_a_prompt_and_reply_that_just_fit_are_served(build_model: Build, plain_tokenizer: Any) -> None:
    engine = TorchEngine(endless(build_model), plain_tokenizer, max_context=32)
    fits = GenerationRequest([1] * 20, Sampling(max_tokens=12))
    (reply,) = asyncio.run(collect(engine, fits))
    assert len(reply.token_ids) == 12


def test_the_context_is_the_models_own_unless_given(build_model: Build, tokenizer: Any) -> None:
    engine = TorchEngine(build_model("llama"), tokenizer)
    with pytest.raises(UserError, match="context of 512"):
        asyncio.run(collect(engine, GenerationRequest([1] * 500, Sampling(max_tokens=13))))
