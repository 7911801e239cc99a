"""The embedded engine against plain forwards of the same model."""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.loading import save_model
from whetstone.engine.torch_engine import TorchEngine
from whetstone.engine.weights import copy_model

Build = Callable[..., Any]
ARCHITECTURES = ["llama", "qwen3", "mistral", "gemma3_text", "phi3", "qwen2"]
LONG = "A longer prompt, so that rows of one batch begin at different columns."


async def collect(engine: TorchEngine, request: GenerationRequest) -> list[Completion]:
    replies = [reply async for reply in engine.generate(request)]
    assert sorted(r.index for r in replies) == list(range(request.n))
    return sorted(replies, key=lambda r: r.index)


def serve(engine: TorchEngine, *requests: GenerationRequest) -> list[list[Completion]]:
    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(collect(engine, r) for r in requests))

    return asyncio.run(run())


def teacher_forced(
    model: Any,
    prompt: list[int],
    reply: list[int],
    temperature: float = 1.0,
    supports: Sequence[list[int]] = (),
) -> list[float]:
    """Log-probs of a reply by one forward over prompt and reply, without any cache."""
    ids = torch.tensor([prompt + reply])
    with torch.no_grad():
        if model.config.model_type == "phi3":  # its frequencies change as the sequence grows
            ends = range(len(prompt), ids.shape[1])
            logits = torch.stack([model(input_ids=ids[:, :e], use_cache=False).logits[0, -1] for e in ends])
        else:
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    for row, support in zip(logits, supports, strict=False):
        row[[i not in support for i in range(len(row))]] = -torch.inf
    scores = torch.log_softmax(logits.float() / temperature, -1)
    return scores.gather(-1, torch.tensor(reply)[:, None]).squeeze(-1).tolist()


def reference(model: Any, request: GenerationRequest, index: int, ends: set[int]) -> list[int]:
    """What the documented streams draw, one uncached forward a token and a plain running sum."""
    stream = random.Random(f"{request.seed}/{index}")
    ids = list(request.prompt_ids)
    while len(ids) - len(request.prompt_ids) < request.params.max_tokens:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double()
        shares = torch.softmax(logits / request.params.temperature, -1).tolist()
        ids.append(bisect.bisect_right(list(accumulate(shares)), stream.random()))
        if ids[-1] in ends:
            break
    return ids[len(request.prompt_ids) :]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_replies_are_those_of_an_uncached_loop(architecture: str, build_model: Build, tokenizer: Any) -> None:
    """Shared prompts, rows of different lengths, late admission and compaction change nothing."""
    model = build_model(architecture)
    requests = [
        GenerationRequest(tokenizer.encode("def f"), Sampling(max_tokens=9), n=3, seed=1),
        GenerationRequest(tokenizer.encode(LONG), Sampling(max_tokens=25, temperature=0.7), n=2, seed=2),
        GenerationRequest([5], Sampling(max_tokens=30), n=2, seed=3),
        GenerationRequest(tokenizer.encode(LONG * 2), Sampling(max_tokens=12), n=2, seed=4),
    ]
    ends = {tokenizer.eos_token_id}
    expected = [[reference(model, r, i, ends) for i in range(r.n)] for r in requests]
    for max_batch in (2, 64):
        engine = TorchEngine(model, tokenizer, max_batch=max_batch)
        replies = serve(engine, *requests)
        assert [[reply.token_ids for reply in group] for group in replies] == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_a_plain_forward(
    architecture: str, temperature: float, build_model: Build, tokenizer: Any
) -> None:
    model = build_model(architecture)
    prompts = [tokenizer.encode(text) for text in ("x", "for i in range", LONG)]
    params = Sampling(max_tokens=20, temperature=temperature, top_p=0.9, top_k=50)
    requests = [GenerationRequest(p, params, n=2, seed=s, supports=True) for s, p in enumerate(prompts)]
    for request, group in zip(requests, serve(TorchEngine(model, tokenizer), *requests), strict=True):
        for reply in group:
            kept = reply.supports
            assert len(kept) == len(reply.token_ids)
            assert all(token in support for token, support in zip(reply.token_ids, kept, strict=True))
            expected = teacher_forced(model, request.prompt_ids, reply.token_ids, temperature, kept)
            assert reply.logprobs == pytest.approx(expected, abs=2e-4)


def test_bfloat16_logprobs_are_close_to_a_plain_forward(build_model: Build, tokenizer: Any) -> None:
    model = build_model("llama", dtype=torch.bfloat16)
    prompt = tokenizer.encode(LONG)
    (group,) = serve(TorchEngine(model, tokenizer), GenerationRequest(prompt, Sampling(max_tokens=40), n=4))
    drift = [
        abs(a - b)
        for reply in group
        for a, b in zip(reply.logprobs, teacher_forced(model, prompt, reply.token_ids), strict=True)
    ]
    assert sum(drift) / len(drift) < 0.1


def test_a_long_reply_outgrows_the_cache_unharmed(build_model: Build, tokenizer: Any) -> None:
    """The window moves and the tensors grow several times while short replies come and go."""
    model = build_model("llama")
    engine = TorchEngine(model, tokenizer, max_batch=3)
    engine_requests = [GenerationRequest([9, 8], Sampling(max_tokens=380), seed=11)] + [
        GenerationRequest(tokenizer.encode(LONG[: 3 * s + 1]), Sampling(max_tokens=7), n=3, seed=s)
        for s in range(20)
    ]
    replies = serve(engine, *engine_requests)
    for request, group in zip(engine_requests, replies, strict=True):
        for reply in group:
            expected = teacher_forced(model, request.prompt_ids, reply.token_ids)
            assert reply.logprobs == pytest.approx(expected, abs=2e-4)


def test_greedy_takes_the_most_likely_token(build_model: Build, tokenizer: Any) -> None:
    model = build_model("qwen3")
    prompt = tokenizer.encode("return")
    request = GenerationRequest(prompt, Sampling(max_tokens=15, temperature=0), n=2)
    ((first, second),) = serve(TorchEngine(model, tokenizer), request)
    assert first.token_ids == second.token_ids
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + first.token_ids])).logits[0]
    assert first.token_ids == logits[len(prompt) - 1 : -1].argmax(-1).tolist()
    assert first.logprobs == pytest.approx(teacher_forced(model, prompt, first.token_ids), abs=2e-4)


def test_long_rope_gives_the_greedy_text_of_transformers(build_model: Build, tokenizer: Any) -> None:
    """Short and long sequences side by side, and replies that pass the length where frequencies change."""
    model = build_model("phi3")
    prompts = [tokenizer.encode(LONG[:length]) for length in (3, 12, 18, 19, 20, 21, 22, 60)]
    params = Sampling(max_tokens=14, temperature=0)
    found = serve(TorchEngine(model, tokenizer), *(GenerationRequest(p, params) for p in prompts))
    for prompt, (reply,) in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            whole = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=14, do_sample=False, pad_token_id=0
            )
        assert reply.token_ids == whole[0, len(prompt) :].tolist()


def test_dynamic_rope_is_refused_beyond_the_length_where_it_would_stretch(
    build_model: Build, tokenizer: Any
) -> None:
    model = build_model("qwen2")
    with pytest.raises(UserError, match=r"600 tokens: rope of type `dynamic`.* beyond 512"):
        TorchEngine(model, tokenizer, max_context=600)
    with pytest.raises(UserError, match="context of 512"):
        serve(TorchEngine(model, tokenizer), GenerationRequest([1] * 500, Sampling(max_tokens=13)))


def test_seeds_fix_replies_and_differ_from_each_other(build_model: Build, tokenizer: Any) -> None:
    engine = TorchEngine(build_model("llama"), tokenizer)
    params = Sampling(max_tokens=12)
    requests = [GenerationRequest([1, 2, 3], params, n=3, seed=seed) for seed in (7, 7, 8)]
    first, again, other = serve(engine, *requests)
    assert [r.token_ids for r in first] == [r.token_ids for r in again]
    drawn = [tuple(r.token_ids) for r in first + other]
    assert len(set(drawn)) == len(drawn)


def test_a_reply_ends_at_length_stop_string_or_end_token(build_model: Build, tokenizer: Any) -> None:
    model = build_model("llama")
    engine = TorchEngine(model, tokenizer)
    prompt = tokenizer.encode("while True:")
    ((free,),) = serve(engine, GenerationRequest(prompt, Sampling(max_tokens=40), seed=5))
    # Two neighbouring tokens with plain text, whose pair has not come before, make the stop string.
    texts = [tokenizer.decode([t]) for t in free.token_ids]
    at = next(i for i in range(5, 39) if all(t.isascii() and t.isprintable() and t for t in texts[i : i + 2]))
    stop = texts[at] + texts[at + 1]
    assert stop not in tokenizer.decode(free.token_ids[: at + 1])
    ((stopped,),) = serve(
        engine, GenerationRequest(prompt, Sampling(max_tokens=40, stop=("\x00", stop)), seed=5)
    )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: at + 2]
    ((short,),) = serve(engine, GenerationRequest(prompt, Sampling(max_tokens=6), seed=5))
    assert (short.finish_reason, short.token_ids) == ("length", free.token_ids[:6])
    model.generation_config.eos_token_id = [299, free.token_ids[3]]
    ((ended,),) = serve(
        TorchEngine(model, tokenizer), GenerationRequest(prompt, Sampling(max_tokens=40), seed=5)
    )
    cut = free.token_ids.index(free.token_ids[3]) + 1
    assert (ended.finish_reason, ended.token_ids) == ("stop", free.token_ids[:cut])


def test_weights_come_from_a_folder_as_well_as_from_tensors(
    build_model: Build, tokenizer: Any, tmp_path: Path
) -> None:
    new, request = build_model("llama", seed=1), GenerationRequest([1, 2, 3], Sampling(max_tokens=9), n=2)
    save_model(new, tokenizer, tmp_path)
    engine = TorchEngine(build_model("llama", seed=0), tokenizer)
    asyncio.run(engine.update_weights(tmp_path, 5))
    assert engine.version == 5
    (found,), (expected,) = serve(engine, request), serve(TorchEngine(new, tokenizer), request)
    assert [reply.token_ids for reply in found] == [reply.token_ids for reply in expected]
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        asyncio.run(engine.update_weights(tmp_path / "none", 6))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_second_model_is_the_same_and_shares_nothing(architecture: str, build_model: Build) -> None:
    model = build_model(architecture)
    random_before = torch.random.get_rng_state()
    twin = copy_model(model)
    assert torch.equal(torch.random.get_rng_state(), random_before)
    assert not any(p.requires_grad for p in twin.parameters())
    assert twin.generation_config.eos_token_id == model.generation_config.eos_token_id
    ids = torch.arange(40)[None]
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        assert torch.equal(twin(input_ids=ids).logits, expected)
        for parameter in model.parameters():
            parameter.zero_()
        assert torch.equal(twin(input_ids=ids).logits, expected)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3_text"])
def test_a_common_beginning_of_prompts_is_read_once(
    architecture: str, build_model: Build, tokenizer: Any
) -> None:
    """Also one that is longer than a sliding window, and a prompt that is only the beginning."""
    model = build_model(architecture)
    beginning = tokenizer.encode("A system prompt of forty-eight tokens comes first")
    ends = [tokenizer.encode(text) for text in ("add two numbers", "reverse", "", "sort a list of numbers")]
    prompts = [[*beginning, *end] for end in ends]
    alone = [
        serve(TorchEngine(model, tokenizer), GenerationRequest(p, Sampling(max_tokens=9), seed=i))[0]
        for i, p in enumerate(prompts)
    ]
    read: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, ids, __: read.append(ids[0].numel()))
    engine = TorchEngine(model, tokenizer)
    read.clear()
    together = serve(
        engine, *(GenerationRequest(p, Sampling(max_tokens=9), seed=i) for i, p in enumerate(prompts))
    )
    hook.remove()
    assert [r.token_ids for [r] in together] == [r.token_ids for [r] in alone]
    # A pass over the beginning, and one over the padded rest of each prompt.
    assert read[0] + read[1] == (len(beginning) - 2) + len(prompts) * (len(ends[3]) + 1)
