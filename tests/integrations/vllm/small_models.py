"""Models that vLLM serves on a CPU, each far from any other, and how far replies are from them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from whetstone.engine.engine import Completion, Engine
from whetstone.engine.factory import build_engine
from whetstone.engine.settings import EngineSection

OPTIONS = {
    "python": sys.executable,
    "arguments": ["--enforce-eager", "--max-num-seqs", "8", "--no-enable-prefix-caching"],
    "environment": {"VLLM_CPU_KVCACHE_SPACE": "1"},
}


def model(seed: int) -> Any:
    """One whose heads of 64 vLLM's attention on a CPU has, and far from any of another seed."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.2,
        eos_token_id=None,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval().bfloat16()


def serving(served: Any) -> Engine:
    """A vLLM that serves this model."""
    words = {f"t{i}": i for i in range(64)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "t0")))
    return build_engine(EngineSection(kind="vllm", options=OPTIONS), lambda: served, tokenizer)


def gap(trained: Any, prompt: list[int], reply: Completion, version: int) -> float:
    """Mean |engine - model| log-prob of the tokens that were drawn under ``version``."""
    with torch.no_grad():
        logits = trained(torch.tensor([[*prompt, *reply.token_ids]])).logits[0].float()
    rows = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    said = rows.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0].tolist()
    chosen = [
        abs(a - b) for a, b, v in zip(said, reply.logprobs, reply.versions, strict=True) if v == version
    ]
    assert chosen
    return sum(chosen) / len(chosen)


async def whole(replies: AsyncIterator[Completion]) -> list[Completion]:
    """All replies of a request."""
    return [reply async for reply in replies]
