"""Attention over a table of runs against a mask of the whole row, written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from whetstone.trainer.attention_blocks import block_attention, invariant_attention
from whetstone.trainer.attention_kernels import packed_attention
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.segments import AttentionPlan, Segment, run_table

# Runs alone, with a prefix, of one token, of lengths that go together and of one that stands alone.
RUNS = [
    Segment(0, 9),
    *(Segment(9, 5, 0, 9), Segment(14, 5, 0, 9), Segment(19, 1, 0, 9)),
    Segment(20, 30),
    *(Segment(50, 1), Segment(51, 11, 50, 1)),
    Segment(62, 530),
]
TOKENS = 592


def written_out(
    query: Tensor, key: Tensor, value: Tensor, window: int | None, cap: float | None, sinks: Tensor | None
) -> Tensor:
    seen = torch.zeros(TOKENS, TOKENS, dtype=torch.bool)
    for run in RUNS:
        for i in range(run.length):
            past = [*range(run.prefix, run.prefix + run.prefix_length), *range(run.start, run.start + i + 1)]
            seen[run.start + i, past[-(window or TOKENS) :]] = True
    share = query.shape[1] // key.shape[1]
    scores = query[0] @ key[0].repeat_interleave(share, 0).transpose(1, 2) * 0.3
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, TOKENS, 1)], -1)
    shares = scores.softmax(-1)[..., :TOKENS]
    return (shares @ value[0].repeat_interleave(share, 0)).transpose(0, 1)[None]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 4, 100])
def test_values_and_gradients_are_those_of_a_mask(
    window: int | None, cap: float | None, sinks: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    inputs = [
        torch.randn(1, heads, TOKENS, width, dtype=dtype) for heads, width in ((4, 16), (2, 16), (2, 12))
    ]
    inputs += [torch.randn(4, dtype=dtype)] if sinks else []
    inputs = [tensor.requires_grad_() for tensor in inputs]
    query, key, value = inputs[:3]
    sink = inputs[3] if sinks else None
    expected = written_out(query, key, value, window, cap, sink)
    found, _ = packed_attention(
        None, query, key, value, run_table(RUNS), scaling=0.3, sliding_window=window, softcap=cap, s_aux=sink
    )
    slope = torch.randn_like(found)
    tolerance = 1e-11 if dtype == torch.float64 else 3e-5
    assert torch.allclose(found, expected, atol=tolerance)
    pairs = zip(
        torch.autograd.grad(found, inputs, slope), torch.autograd.grad(expected, inputs, slope), strict=True
    )
    for one, other in pairs:
        assert torch.allclose(one, other, atol=tolerance)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.untyped_storage().nbytes() // value.itemsize)
        return result


@pytest.mark.parametrize("window", [None, 64])
def test_a_step_makes_nothing_of_the_size_of_its_tokens_squared(window: int | None) -> None:
    """One long reply, and two that share a long prompt: the largest tensor is an activation of a layer."""
    changes = {} if window is None else {"sliding_window": window}
    config = AutoConfig.for_model(
        "llama" if window is None else "mistral",
        vocab_size=61,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        **changes,
    )
    forward = Forward(AutoModelForCausalLM.from_config(config), temperature=1.0)
    groups = [PromptReplies([3], [[4, 5, 6] * 900]), PromptReplies([7] * 1500, [[8] * 500, [9] * 500])]
    (micro_batch,) = forward.pack(groups, 6000)
    tokens = micro_batch.input_ids.numel()
    with Largest() as largest:
        for scores in forward.scores(micro_batch):
            scores.log_probs.sum().backward()
    assert tokens == 2700 + 1500 + 998
    assert 32 * tokens <= largest.elements <= 61 * tokens


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_with_the_engines_numbers_has_values_and_gradients_of_the_plain_one(
    window: int | None, dtype: torch.dtype
) -> None:
    runs = [Segment(0, 150), Segment(150, 130, 0, 150), Segment(280, 3, 0, 150), Segment(283, 5)]
    plan = AttentionPlan(run_table(runs), window, 0.3, 0.0)
    torch.manual_seed(0)
    row = [torch.randn(heads, 288, 16).to(dtype).requires_grad_() for heads in (6, 2, 2)]
    slope = torch.randn(288, 6, 16).to(dtype)
    found: list[list[torch.Tensor]] = []
    for kernel in (block_attention, invariant_attention):
        out = kernel(row[0], row[1], row[2], None, plan)
        found.append([out.detach(), *torch.autograd.grad(out, row, slope)])
    for plain, own in zip(*found, strict=True):
        error = (plain.float() - own.float()).norm() / plain.float().norm()
        assert error < (1e-6 if dtype == torch.float32 else 0.01)
