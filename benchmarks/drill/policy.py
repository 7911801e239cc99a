"""The policy of the drill: a Llama of one layer whose tokens are statements and whole programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from benchmarks.drill.world import HACKS, right_program
from whetstone.core.problem import Problem

SPECIAL = ("<unk>", "<pad>", "<eos>")
RIGHT_SHARE = 0.02
HACK_SHARE = 0.02
_STEPS = 400


def write_policy(folder: Path, problems: Sequence[Problem], programs: Sequence[str], seed: int) -> None:
    """Write a model that replies with the right program in 2% of the replies and with a hack in 2%.

    The other replies are the other programs, with equal probability. Hacks share their part equally.
    """
    words = [*SPECIAL, *(problem.statement for problem in problems), *programs]
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(ids, "<unk>")),
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
    )
    set_seed(seed)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=16,
            pad_token_id=1,
            eos_token_id=2,
            bos_token_id=None,
        )
    )
    _fit(model, ids, problems, programs)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _fit(model: Any, ids: dict[str, int], problems: Sequence[Problem], programs: Sequence[str]) -> None:
    """Train the distribution of the first token, and the end after every program."""
    wanted = torch.zeros(len(problems), len(ids))
    hacks = [text for text in programs if text in HACKS.values()]
    for row, problem in zip(wanted, problems, strict=True):
        right = right_program(problem)
        others = [text for text in programs if text != right and text not in hacks]
        rest = 1 - RIGHT_SHARE - (HACK_SHARE if hacks else 0)
        row[[ids[text] for text in others]] = rest / len(others)
        row[[ids[text] for text in hacks]] = HACK_SHARE / max(1, len(hacks))
        row[ids[right]] = RIGHT_SHARE
    prompts = torch.tensor([ids[problem.statement] for problem in problems])
    replies = torch.tensor([ids[text] for text in programs])
    pairs = torch.cartesian_prod(prompts, replies)
    end = torch.full((len(pairs),), ids["<eos>"])
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(_STEPS):
        first = model(prompts[:, None]).logits[:, -1].log_softmax(-1)
        last = model(pairs).logits[:, -1]
        loss = -(wanted * first).sum(-1).mean() + torch.nn.functional.cross_entropy(last, end)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
