"""CPU time of generation against Hugging Face's ``generate``, side by side. Prints a table.

    .venv/bin/python benchmarks/generation.py --model models/SmolLM2-135M-Instruct --rounds 3

As reinforcement learning asks for replies: ``--per-prompt`` of them to each prompt (8; all prompts differ
where it is 1), sampled at temperature 1, of a fixed length. Both sides are given the same model object in
bf16, the same prompts and one thread, and freed memory stays in the process; they take turns, and the ratio
is made within a turn, so that a busy machine weighs on both.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

import torch

from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, Engine, GenerationRequest
from whetstone.engine.loading import load_model
from whetstone.engine.memory import keep_freed_memory
from whetstone.engine.torch_engine import TorchEngine


class Endless:
    """No reply ends before its length."""

    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


def hugging_face(model: Any, prompts: list[list[int]], each: int, new: int) -> int:
    ids = torch.tensor([prompt for prompt in prompts for _ in range(each)], device=model.device)
    with torch.no_grad():
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=0,
        )
    return (found.shape[1] - ids.shape[1]) * len(found)


def whetstone(engine: Engine, prompts: list[list[int]], each: int, new: int) -> int:
    async def group(prompt: list[int], seed: int) -> list[Completion]:
        request = GenerationRequest(prompt, Sampling(max_tokens=new), n=each, seed=seed)
        return [reply async for reply in engine.generate(request)]

    async def groups() -> list[list[Completion]]:
        return await asyncio.gather(*(group(prompt, seed) for seed, prompt in enumerate(prompts)))

    return sum(len(reply.token_ids) for replies in asyncio.run(groups()) for reply in replies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--per-prompt", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=96, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=40, help="tokens of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    model = load_model(args.model, dtype="bfloat16", device="cpu").model
    model.generation_config.eos_token_id = None
    engine = TorchEngine(model, Endless())
    rng = random.Random(0)
    print("| batch | Hugging Face, CPU s | Whetstone, CPU s | ratios | median |")
    print("| --- | --- | --- | --- | --- |")
    for batch in args.batches:
        each = min(args.per_prompt, batch)
        prompts = [[rng.randrange(3, 40_000) for _ in range(args.prompt)] for _ in range(batch // each)]
        sides = {"plain": lambda: hugging_face(model, prompts, each, args.new)}  # noqa: B023
        sides["ours"] = lambda: whetstone(engine, prompts, each, args.new)  # noqa: B023
        spent: dict[str, list[float]] = {"plain": [], "ours": []}
        for turn in range(args.rounds + 1):
            for name, side in sides.items():
                before = time.process_time()
                assert side() == batch * args.new
                if turn:  # the first turn warms up
                    spent[name].append(time.process_time() - before)
        ratios = [ours / plain for plain, ours in zip(spent["plain"], spent["ours"], strict=True)]
        plain, ours = (statistics.median(values) for values in spent.values())
        listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"| {batch} | {plain:.2f} | {ours:.2f} | {listed} | {statistics.median(ratios):.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
