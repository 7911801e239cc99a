"""Exact attention over flat rows of many sequences without a mask of the row.

A token attends to its own run up to itself, and to a prefix (``segments.py``). Attention over a union follows
from attention over its parts: with the logarithm of each part's sum of exponentials, the parts are weighted
and added. The gradients of a part are those of ordinary attention, given the output and the logarithm of the
whole (Liu et al., Ring Attention, arXiv 2310.01889, use both across devices; Juravsky et al., Hydragen, arXiv
2402.05099, for a shared prefix). So each part uses torch's kernel, and memory grows linearly with tokens.
What that kernel lacks (score caps, devices other than the CPU) is computed in blocks of bounded size.
Attention sinks are added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface

from whetstone.trainer.attention_blocks import (
    AttentionRow,
    Gradients,
    block_backward,
    block_forward,
    prefix_backward,
    prefix_forward,
    varlen_backward,
    varlen_forward,
)
from whetstone.trainer.segments import AttentionPieces, attention_pieces

# The name of :func:`packed_attention` in transformers.
PACKED = "whetstone_packed"


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface for one flat row.

    query: [1, heads, tokens, width], key and value: [1, shared heads, tokens, width], value possibly with
    another width; attention_mask: a table of runs (:func:`whetstone.trainer.segments.run_table`). Returns [1,
    tokens, heads, width of value]. Dropout is not applied, because a trained policy has none.
    """
    written_out = bool(softcap) or query.device.type != "cpu"
    pieces = attention_pieces(
        attention_mask, window=sliding_window, scores_per_token=query.shape[1] if written_out else None
    )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    width = value.shape[-1]
    # The kernel needs equal widths of queries and values.
    if width < query.shape[-1]:
        value = torch.nn.functional.pad(value, (0, query.shape[-1] - width))
    how = _AttentionPlan(pieces, scale, softcap or 0.0, written_out)
    out = cast(Tensor, cast(Any, _PackedAttention).apply(query[0], key[0], value[0], s_aux, how))
    return out[..., :width].transpose(0, 1)[None], None


AttentionInterface.register(PACKED, packed_attention)


@dataclass(frozen=True)
class _AttentionPlan:
    pieces: AttentionPieces
    scale: float
    cap: float
    written_out: bool


class _PackedAttention(torch.autograd.Function):
    """[heads, tokens, width] queries, keys, values and [heads] sinks → [heads, tokens, width]."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, how: _AttentionPlan
    ) -> Tensor:
        wide = torch.promote_types(query.dtype, torch.float32)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        logsum = torch.empty(query.shape[:2], dtype=wide, device=query.device)
        row = AttentionRow(query, key, value, out, logsum, how.scale, how.cap)
        for part in how.pieces.varlen:
            varlen_forward(row, part)
        for part in how.pieces.prefixed:
            prefix_forward(row, part)
        for block in how.pieces.blocks:
            block_forward(row, block, written_out=how.written_out)
        # A sink is a key with value zero that every token attends to.
        if sinks is not None:
            whole = torch.logaddexp(logsum, sinks.to(wide)[:, None])
            out.mul_((logsum - whole).exp().to(out.dtype)[..., None])
            logsum = whole
        ctx.save_for_backward(query, key, value, sinks, out, logsum)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        query, key, value, sinks, out, logsum = ctx.saved_tensors
        how: _AttentionPlan = ctx.how
        row = AttentionRow(query, key, value, out, logsum, how.scale, how.cap)
        # A token's gradient is a sum over several parts, so it is accumulated at least in fp32.
        sums = (torch.zeros(t.shape, dtype=logsum.dtype, device=t.device) for t in (query, key, value))
        slopes = Gradients(gradients[0].contiguous(), *sums)
        for part in how.pieces.varlen:
            varlen_backward(row, slopes, part)
        for part in how.pieces.prefixed:
            prefix_backward(row, slopes, part)
        for block in how.pieces.blocks:
            block_backward(row, slopes, block, written_out=how.written_out)
        to_sinks = None
        if sinks is not None:
            inner = (slopes.out * out).sum(-1, dtype=logsum.dtype)
            to_sinks = -((sinks.to(logsum.dtype)[:, None] - logsum).exp() * inner).sum(-1).to(sinks.dtype)
        found = (slopes.query.to(query.dtype), slopes.key.to(key.dtype), slopes.value.to(value.dtype))
        return *found, to_sinks, None
