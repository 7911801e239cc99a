"""With ``deterministic: true`` the engine's log-probs are the trainer's, bit for bit, on a CPU."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from whetstone.algorithm.named import algorithm_named
from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.factory import build_engine
from whetstone.engine.invariance import supports_invariance
from whetstone.engine.settings import EngineSection
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.forward import Forward
from whetstone.trainer.log_probs import Supports
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

Build = Callable[..., Any]
TEMPERATURE = 0.8
# A prompt and a sequence longer than one block of keys, and prompts of one and two tokens.
SIZES = [(140, 9), (5, 30), (1, 3), (2, 140)]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


class Endless:
    """No reply ends before its length."""

    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


@pytest.fixture(autouse=True)
def other_processors(build_model: Build) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        if not supports_invariance(build_model("llama", dtype=dtype)):
            pytest.skip("the matrix products of this processor depend on the number of rows")


def requests(n: int) -> list[GenerationRequest]:
    rng = random.Random(0)
    return [
        GenerationRequest(
            [rng.randrange(256) for _ in range(prompt)],
            Sampling(max_tokens=reply, temperature=TEMPERATURE),
            n,
            seed,
        )
        for seed, (prompt, reply) in enumerate(SIZES)
    ]


async def generated(engine: TorchEngine, asked: list[GenerationRequest]) -> list[list[Completion]]:
    async def replies(request: GenerationRequest) -> list[Completion]:
        return sorted([one async for one in engine.generate(request)], key=lambda one: one.index)

    return await asyncio.gather(*(replies(request) for request in asked))


def differing(model: Any, batch: int, micro_batch_tokens: int, **truncation: Any) -> tuple[int, int]:
    """How many log-probs of generated tokens the trainer does not compute alike, and of how many."""
    asked = [
        replace(each, params=each.params.model_copy(update=truncation), supports=True)
        for each in requests(min(batch, 3))
    ]
    engine = TorchEngine(model, Endless(), max_batch=batch, invariant=True)
    found = asyncio.run(generated(engine, asked))
    said = torch.tensor([p for replies in found for reply in replies for p in reply.logprobs])
    groups = [
        PromptReplies(request.prompt_ids, [reply.token_ids for reply in replies])
        for request, replies in zip(asked, found, strict=True)
    ]
    forward = Forward(model, temperature=TEMPERATURE, invariant=True)
    packed = forward.pack(groups, micro_batch_tokens)
    own = forward.log_probs(packed, len(said), supports_of([r for replies in found for r in replies]))
    return int((own != said).sum()), len(said)


def supports_of(replies: list[Completion]) -> Supports | None:
    listed = [support for reply in replies for support in reply.supports]
    counts = torch.tensor([len(support) for support in listed])
    ids = torch.tensor([i for support in listed for i in support])
    return Supports(ids, counts.cumsum(0) - counts, counts) if listed else None


def endless(build_model: Build, family: str, dtype: torch.dtype) -> Any:
    model = build_model(family, dtype=dtype)
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.drawn(9)
@pytest.mark.parametrize("batch", [1, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2"])
def test_engine_and_trainer_agree_in_every_bit(
    family: str, dtype: torch.dtype, batch: int, build_model: Build
) -> None:
    wrong, tokens = differing(endless(build_model, family, dtype), batch, 100)
    assert wrong == 0
    assert tokens >= 180


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("count", "micro_batch_tokens"), [(1, 4096), (2, 60), (3, 4096)])
def test_they_agree_for_any_number_of_threads_and_size_of_micro_batches(
    count: int,
    micro_batch_tokens: int,
    build_model: Build,
    threads: Callable[[int], None],
) -> None:
    threads(count)
    model = endless(build_model, "qwen3", torch.float32)
    assert differing(model, 5, micro_batch_tokens)[0] == 0


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("truncation", [{"top_p": 0.8}, {"top_k": 5}])
def test_they_agree_over_the_supports_of_truncated_replies(
    truncation: dict[str, Any], dtype: torch.dtype, build_model: Build
) -> None:
    model = endless(build_model, "llama", dtype)
    wrong, tokens = differing(model, 7, 100, **truncation)
    assert (wrong, tokens >= 180) == (0, True)


def test_they_agree_with_sliding_windows(build_model: Build) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        "qwen3", vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, initializer_range=0.3, eos_token_id=256,
        use_sliding_window=True, sliding_window=20, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    assert differing(model, 4, 4096)[0] == 0


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_replies_are_those_of_the_plain_engine_up_to_rounding(family: str, build_model: Build) -> None:
    """Families for which nothing is promised are generated as ever."""
    model = endless(build_model, family, torch.float32)
    plain, invariant = (
        asyncio.run(generated(TorchEngine(model, Endless(), invariant=on), requests(2)))
        for on in (False, True)
    )
    for one, other in zip(plain, invariant, strict=True):
        assert [reply.token_ids for reply in one] == [reply.token_ids for reply in other]
        for mine, its in zip(one, other, strict=True):
            assert mine.logprobs == pytest.approx(its.logprobs, abs=1e-4)
            assert (mine.logprobs == its.logprobs) == (family == "gemma3_text")


def test_the_gap_of_a_deterministic_run_is_zero(build_model: Build) -> None:
    async def batch_of(engine: Any, seed: int) -> Batch:
        groups: list[Group] = []
        asked = [replace(request, seed=seed + i) for i, request in enumerate(requests(4))]
        for request, replies in zip(asked, await generated(engine, asked), strict=True):
            samples = [
                Sample(r.token_ids, r.logprobs, r.versions, "stop", "", reward=float(r.index % 2))
                for r in replies
            ]
            groups.append(Group(str(seed), request.prompt_ids, samples))
        return Batch(groups)

    async def gaps() -> list[dict[str, float]]:
        trainer = Trainer(
            endless(build_model, "llama", torch.bfloat16),
            algorithm_named("grpo", {"overlong_buffer": 0}),
            TrainerSection(lr=1e-3, minibatches=2, micro_batch_tokens=150),
            temperature=TEMPERATURE,
            max_tokens=200,
            deterministic=True,
        )
        engine = build_engine(EngineSection(), trainer.plain_copy, Endless(), deterministic=True)
        found: list[dict[str, float]] = []
        for step in range(2):
            found.append(trainer.step(await batch_of(engine, 10 * step)))
            await engine.update_weights(trainer.weights(), trainer.version)
        await engine.close()
        return found

    for metrics in asyncio.run(gaps()):
        assert metrics["grad_norm"] > 0
        assert (metrics["logprob_gap_max"], metrics["engine_gap"], metrics["outside"]) == (0, 0, 0)


def test_a_processor_without_invariant_products_is_detected(build_model: Build) -> None:
    model = build_model("llama")
    up = model.model.layers[1].mlp.up_proj  # the last layer of this shape is the one that is tried
    forward = up.forward
    up.forward = lambda values: forward(values) * (1 + 1e-6 * (len(values) < 8))
    assert not supports_invariance(model)
    up.forward = forward
    assert supports_invariance(model)
    assert not supports_invariance(build_model("gemma3_text"))
