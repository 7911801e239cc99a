"""Every family that is served and trained: cached generation and packed training equal the plain model's.

A family gets its place in ``TESTED_FAMILIES`` (``engine/architecture.py``) by passing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from tests.families.tiny_families import DIFFERENT, FAMILIES, VOCABULARY, tiny_family
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.architecture import OWN_ATTENTION, TESTED_FAMILIES, check_architecture
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.loading import load_model
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies

GROUPS = [
    PromptReplies([3, 4, 5, 6, 7, 8, 9, 10], [[7, 8, 9] * 4, [10], [11, 12, 13, 3]]),
    PromptReplies([13], [[14, 15, 16, 17, 18, 5, 6]]),
    PromptReplies([21, 22, 23], [[6, 5], [9, 8, 7, 11, 30, 31, 33]]),
]
TOKENS = sum(len(reply) for group in GROUPS for reply in group.replies)
LIMIT = 30
"""Tokens of a micro-batch: there are several, and one holds several groups."""


class Endless:
    """A tokenizer without text and without an end."""

    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def alone(model: Any) -> torch.Tensor:
    """Log-probs of all replies, each a plain forward of its own; adds the gradients of a sum of them."""
    parts: list[torch.Tensor] = []
    for group in GROUPS:
        for reply in group.replies:
            ids = torch.tensor([[*group.prompt_ids, *reply]])
            logits = model(ids, use_cache=False).logits[0, len(group.prompt_ids) - 1 : -1]
            rows = (logits / 0.7).log_softmax(-1)
            found = rows.gather(1, torch.tensor(reply)[:, None])[:, 0]
            (found * found.detach().cos()).sum().backward()
            parts.append(found.detach())
    return torch.cat(parts)


@pytest.mark.drawn(6, always=DIFFERENT)
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_are_as_good_as_each_sequence_alone(family: str) -> None:
    model = tiny_family(family)
    expected = alone(model)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)

    forward = Forward(model, temperature=0.7)
    assert forward.layout == ("padded" if family in OWN_ATTENTION else "shared_prefix")
    micro_batches = forward.pack(GROUPS, LIMIT)
    assert len(micro_batches) > 1
    found = forward.log_probs(micro_batches, TOKENS)
    assert torch.allclose(found, expected, atol=3e-5)
    for micro_batch in micro_batches:
        for scores in forward.scores(micro_batch):
            (scores.log_probs * expected[scores.places].cos()).sum().backward()
    for name, parameter in model.named_parameters():
        wanted = gradients[name]
        assert parameter.grad is not None, name
        assert wanted is not None, name
        assert (parameter.grad - wanted).norm() <= 3e-5 * wanted.norm() + 1e-6, name


@pytest.mark.drawn(6, always=DIFFERENT)
@pytest.mark.parametrize("family", FAMILIES)
def test_generation_gives_the_greedy_tokens_of_transformers(family: str) -> None:
    """Prompts of several lengths with a common beginning in one running batch, and more replies than run at
    once."""
    model = tiny_family(family)
    model.generation_config.eos_token_id = None
    sizes = [(24, 9), (30, 5), (41, 11), (1, 7), (4, 5), (13, 7)]
    asked = [([3 + i * 7 % 50 for i in range(length)], new) for length, new in sizes]

    async def generate() -> list[list[int]]:
        engine = TorchEngine(model, Endless(), max_batch=3)

        async def reply(prompt: list[int], new: int) -> list[int]:
            request = GenerationRequest(prompt, Sampling(max_tokens=new, temperature=0))
            (ids,) = [done.token_ids async for done in engine.generate(request)]
            return ids

        return await asyncio.gather(*(reply(*one) for one in asked))

    for (prompt, new), found in zip(asked, asyncio.run(generate()), strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            whole = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0
            )
        assert found == whole[0, len(prompt) :].tolist()


def test_every_family_that_is_taken_is_proved_here() -> None:
    assert set(FAMILIES) == TESTED_FAMILIES


@pytest.mark.parametrize("kind", ["bloom", "mpt", "opt", "mamba", "llama4_text", "qwen3_next", "gemma3"])
def test_other_families_are_refused_by_name(kind: str) -> None:
    with pytest.raises(UserError, match=rf"^{kind}: .*qwen3"):
        check_architecture(AutoConfig.for_model(kind))


def test_layers_of_another_kind_are_refused_in_a_family_that_is_proved() -> None:
    layers = ["full_attention", "linear_attention"]
    config = AutoConfig.for_model("qwen3", num_hidden_layers=2, layer_types=layers)
    with pytest.raises(UserError, match=r"^qwen3: layers of kind linear_attention"):
        check_architecture(config)


def test_a_family_is_refused_before_its_weights_are_looked_for(tmp_path: Any) -> None:
    AutoConfig.for_model("opt", vocab_size=VOCABULARY).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"^opt: an untested family.*llama"):
        load_model(str(tmp_path))


def test_packing_is_refused_where_layers_attend_by_themselves() -> None:
    with pytest.raises(UserError, match=r"trainer\.attention: `packed` cannot serve .*`gptj`.*`auto`"):
        Forward(tiny_family("gptj"), temperature=1.0, attention="packed")
