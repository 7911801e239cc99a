"""How far the log-probs of the embedded engine and of the trainer are apart. Prints tables.

    .venv/bin/python benchmarks/mismatch.py routing
    .venv/bin/python benchmarks/mismatch.py deterministic

``routing``: a small Qwen3-MoE and a dense Qwen3 generate replies in bf16; the trainer computes their
log-probs in bf16, with the experts that it chooses and with those that the engine recorded. Their weights are
random, of three scales, and trained on Python's standard library for ``--steps`` updates in fp32.
``deterministic``: random tiny Llama and Qwen3 models at batches of 1, 8 and 32, plain and with the arithmetic
of ``deterministic: true``. One thread; freed memory stays in the process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.expert_routing import has_experts
from whetstone.engine.memory import keep_freed_memory
from whetstone.engine.scratch import build_tokenizer
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.warmup import sft, warmup_rate

VOCABULARY, PROMPT, EXAMPLE = 1024, 32, 256
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
# Both process a token with 512 inner units in a layer.
MODELS = {
    "dense Qwen3": ("qwen3", {"intermediate_size": 512}),
    "Qwen3-MoE": (
        "qwen3_moe",
        {
            "moe_intermediate_size": 128,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
        },
    ),
}
TINY = {
    "vocab_size": 512,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
# The tokens of the prompts of `deterministic`, and of the replies to them.
LENGTHS = [(5, 40), (140, 60), (1, 30), (33, 150)]


class Endless:
    """No reply ends before its length."""

    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


def build(kind: str, settings: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **settings)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def corpus() -> list[list[int]]:
    """Windows of the modules of Python's standard library, as token ids."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    tokenizer = build_tokenizer(texts[:40], VOCABULARY)
    ids = [tokenizer.encode(text[:40_000]) for text in texts]
    windows = [file[i : i + EXAMPLE] for file in ids for i in range(0, len(file) - EXAMPLE, EXAMPLE)]
    random.Random(0).shuffle(windows)
    return windows


def generate(
    model: Any, requests: list[GenerationRequest], *, batch: int, **settings: Any
) -> list[list[Completion]]:
    async def group(engine: TorchEngine, request: GenerationRequest) -> list[Completion]:
        return sorted([reply async for reply in engine.generate(request)], key=lambda reply: reply.index)

    async def groups() -> list[list[Completion]]:
        engine = TorchEngine(model, Endless(), max_batch=batch, **settings)
        return await asyncio.gather(*(group(engine, request) for request in requests))

    return asyncio.run(groups())


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and CPU seconds."""
    before = time.process_time()
    result = call()
    return result, time.process_time() - before


def described(engine: Tensor, trainer: Tensor) -> str:
    gap = (trainer - engine).double()
    tail = gap.abs().quantile(torch.tensor([0.99, 0.999]).double()).tolist()
    outside = ((-gap).exp() < 0.9) | ((-gap).exp() > 1.1)
    kl = (gap.exp() - 1 - gap).mean()
    return (
        f"{float(gap.abs().mean()):.5f} | {tail[0]:.4f} | {tail[1]:.4f} | {float(gap.abs().max()):.3f} | "
        f"{float(outside.double().mean()):.4%} | {float(kl):.2e}"
    )


def routing(args: argparse.Namespace) -> None:
    windows = corpus()
    rng = random.Random(0)
    drawn = [[rng.randrange(1000) for _ in range(PROMPT)] for _ in range(args.prompts)]
    print(
        "| weights | model | experts of the trainer | mean | 99% | 99.9% | largest | outside | KL | "
        "other experts |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    notes: list[str] = []
    for scale in (0.05, 0.1, 0.2, 0.0):
        weights = f"random, {scale}" if scale else f"{args.steps} steps"
        for name, (kind, own) in MODELS.items():
            settings = {"initializer_range": scale, "tie_word_embeddings": False} if scale else {}
            model = build(kind, SMALL | own | settings)
            if not scale:
                losses = train(model, windows, args.steps)
                notes.append(f"{name}: loss {losses[0]:.2f} to {losses[-1]:.2f} nats per token")
            model = model.to(torch.bfloat16).requires_grad_(False)
            prompts = drawn if scale else [window[:PROMPT] for window in windows[-args.prompts :]]
            for row in compared(model, prompts, args.new, notes):
                print(f"| {weights} | {name} | {row} |", flush=True)
    print("\n".join(notes))


def train(model: Any, windows: list[list[int]], steps: int) -> list[float]:
    examples = [(window[:1], window[1:]) for window in windows[: steps * 16]]
    batches = [examples[i : i + 16] for i in range(0, len(examples), 16)]
    return sft(model, batches, rate=lambda step: warmup_rate(2e-3, step, steps))


def compared(model: Any, prompts: list[list[int]], new: int, notes: list[str]) -> Iterator[str]:
    """The columns of a model: with its own experts, and with those of the engine."""
    routes = has_experts(model)
    asked = [
        GenerationRequest(prompt, Sampling(max_tokens=new), 8, seed) for seed, prompt in enumerate(prompts)
    ]
    plain = timed(lambda: generate(model, asked, batch=32))[1]
    recording = [replace(request, routing=routes) for request in asked]
    found, seconds = timed(lambda: generate(model, recording, batch=32))
    engine = torch.tensor([p for replies in found for reply in replies for p in reply.logprobs])
    forward = Forward(model, temperature=1.0, routing_replay=routes)
    groups = [grouped(forward, *each) for each in zip(prompts, found, strict=True)]
    spent: list[str] = []
    for replays in (False, True) if routes else (False,):
        packed = forward.pack(groups if replays else list(map(without_experts, groups)), 4096)
        log_probs, cost = timed(lambda: forward.log_probs(packed, len(engine)))  # noqa: B023
        spent.append(f"{cost:.1f}")
        chosen = "recorded" if replays else "its own" if routes else "none"
        differ = "0" if replays else other_experts(forward, groups) if routes else ""
        yield f"{chosen} | {described(engine, log_probs)} | {differ}"
    if routes:
        size = sum(len(reply.routing.data) for replies in found for reply in replies if reply.routing)
        notes.append(
            f"{len(engine)} tokens: generation {plain:.1f} CPU s, with recording {seconds:.1f}; log-probs "
            f"{spent[0]} and with replay {spent[1]}; {size} bytes of routing"
        )


def grouped(forward: Forward, prompt: list[int], replies: list[Completion]) -> PromptReplies:
    ids = [reply.token_ids for reply in replies]
    if forward.routers is None:
        return PromptReplies(prompt, ids)
    rows = [forward.routers.read(reply.routing) for reply in replies if reply.routing]
    return PromptReplies(prompt, ids, (rows[0][: len(prompt)], [each[len(prompt) :] for each in rows]))


def without_experts(group: PromptReplies) -> PromptReplies:
    return PromptReplies(group.prompt_ids, group.replies)


def other_experts(forward: Forward, groups: list[PromptReplies]) -> str:
    """The share of tokens and layers for which the trainer chooses another set of experts than the engine."""
    assert forward.routers is not None
    different, total = 0, 0
    recorded = forward.pack(groups, 4096)
    chosen = forward.pack([without_experts(group) for group in groups], 4096)
    for theirs, mine in zip(recorded, chosen, strict=True):
        _, rows = forward.routers.record(
            lambda: forward.log_probs([mine], int(mine.tokens.max()) + 1)  # noqa: B023
        )
        assert theirs.experts is not None
        same = rows.sort(-1).values == theirs.experts.transpose(0, 1).sort(-1).values
        different += int((~same.all(-1)).sum())
        total += same[..., 0].numel()
    return f"{different / total:.2%}"


def deterministic(args: argparse.Namespace) -> None:
    print("| model | dtype | batch | arithmetic | tokens | other bits | largest gap |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind in ("llama", "qwen3"):
        for dtype in (torch.float32, torch.bfloat16):
            model = build(kind, TINY, dtype)
            model.generation_config.eos_token_id = None
            for batch in (1, 8, 32):
                for invariant in (False, True):
                    gap = gaps(model, batch, invariant=invariant)
                    how = "deterministic" if invariant else "plain"
                    print(
                        f"| {kind} | {str(dtype).removeprefix('torch.')} | {batch} | "
                        f"{how} | {len(gap)} | {int((gap > 0).sum())} | "
                        f"{float(gap.max()):.1e} |",
                        flush=True,
                    )


def gaps(model: Any, batch: int, *, invariant: bool) -> Tensor:
    random_ids = torch.Generator().manual_seed(1)
    asked = [
        GenerationRequest(
            torch.randint(3, 500, (prompt,), generator=random_ids).tolist(),
            Sampling(max_tokens=reply, temperature=0.8),
            min(8, batch),
            seed,
        )
        for seed, (prompt, reply) in enumerate(LENGTHS)
    ]
    found = generate(model, asked, batch=batch, invariant=invariant)
    engine = torch.tensor([p for replies in found for reply in replies for p in reply.logprobs])
    forward = Forward(model, temperature=0.8, invariant=invariant)
    groups = [
        PromptReplies(request.prompt_ids, [reply.token_ids for reply in replies])
        for request, replies in zip(asked, found, strict=True)
    ]
    return (forward.log_probs(forward.pack(groups, 4096), len(engine)) - engine).abs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=["routing", "deterministic"])
    parser.add_argument("--steps", type=int, default=60, help="updates of the models of `routing`")
    parser.add_argument("--prompts", type=int, default=8, help="of `routing`, with 8 replies each")
    parser.add_argument("--new", type=int, default=64, help="tokens of a reply of `routing`")
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    {"routing": routing, "deterministic": deterministic}[args.part](args)


if __name__ == "__main__":
    main()
