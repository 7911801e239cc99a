"""Peak memory of one training step by length, against a plain Hugging Face implementation. Prints a table.

    .venv/bin/python benchmarks/step_memory.py --tokens 2048 4096 8192

A Llama of 4 layers, 256 wide, with Qwen's vocabulary of 151,936 tokens, fp32: log-probs of one reply of so
many tokens, their negative mean, and its gradients; no optimizer. The plain side is what a loop over
transformers does: the model's logits, ``log_softmax``, the chosen ones. Each runs in a process of its own on
one thread; the peak is the process's largest resident set, less what it had before the step.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies

VOCABULARY = 151_936


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plain_step(model: Any, ids: list[int]) -> float:
    """Return the mean negative log-prob of each token after the first, and add its gradients, as a loop over
    transformers does."""
    inputs, targets = (torch.tensor(part, device=model.device) for part in (ids[:-1], ids[1:]))
    logits = model(input_ids=inputs[None], use_cache=False).logits[0]
    chosen = logits.float().log_softmax(-1).gather(1, targets[:, None])
    loss = -chosen.mean()
    del logits, chosen
    loss.backward()
    return float(loss.detach())


def step(side: str, tokens: int) -> None:
    """One step in this process; prints what it took, in MB, and the loss."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2 * tokens,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, VOCABULARY, (tokens + 1,)).tolist()
    if side == "plain":
        before = peak_mb()
        total = plain_step(model, ids)
    else:
        forward = Forward(model, temperature=1.0)
        before = peak_mb()
        total = 0.0
        for micro_batch in forward.pack([PromptReplies(ids[:1], [ids[1:]])], tokens):
            for scores in forward.scores(micro_batch):
                loss = -scores.log_probs.sum() / tokens
                loss.backward()
                total += float(loss.detach())
    print(peak_mb() - before, total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--side", choices=["plain", "ours"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        step(args.side, args.tokens[0])
        return
    print("| tokens | plain Hugging Face, MB | Whetstone, MB | ratio | losses |")
    print("| --- | --- | --- | --- | --- |")
    for tokens in args.tokens:
        found: dict[str, list[float]] = {}
        for side in ("plain", "ours"):
            command = [sys.executable, __file__, "--side", side, "--tokens", str(tokens)]
            line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            found[side] = [float(value) for value in line]
        (plain, plain_loss), (ours, our_loss) = found["plain"], found["ours"]
        losses = f"{plain_loss:.5f}, {our_loss:.5f}"
        print(f"| {tokens} | {plain:,.0f} | {ours:,.0f} | {ours / plain:.2f} | {losses} |", flush=True)


if __name__ == "__main__":
    main()
