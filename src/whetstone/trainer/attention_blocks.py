"""Packed attention in pieces, for the CPU, and for devices without a kernel (``attention_kernels.py``).

Each piece uses torch's CPU kernel, or plain matrix products in blocks of bounded size: for score caps, and on
other devices. Attention sinks are added at the end. Keys that several heads share are not copied if a view is
sufficient: the kernel treats groups of heads as a batch, with keys and values repeated by a stride of zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from whetstone.engine.invariance import KEYS, attend
from whetstone.trainer.segments import (
    AttentionPieces,
    AttentionPlan,
    PaddedBlock,
    PrefixBlock,
    Segment,
    TokenBlock,
    attention_pieces,
)

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_fp32_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, *rest: Any, **options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Call the gradients of torch's CPU kernel in fp32 at least: in bf16 it takes up to six times as long for
    the short sequences of packed rows, and rounds what is summed afterwards."""
    wide = torch.promote_types(query.dtype, torch.float32)
    inputs = (tensor.to(wide) for tensor in (grad, query, key, value, out))
    return _fp32_backward(*inputs, *rest, **options)


@dataclass(frozen=True)
class AttentionRow:
    """The inputs and outputs of a layer's attention: [heads, tokens, width] and [shared heads, tokens, width]
    tensors.

    The forward functions fill ``out`` and ``logsum`` ([heads, tokens], the logarithms of the sums of
    exponentials); the backward functions need them complete. ``cap``: the bound of the scores, 0 for none.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    logsum: Tensor
    scale: float
    cap: float

    @property
    def groups(self) -> tuple[int, int]:
        """The number of key heads, and of query heads that share each."""
        return self.key.shape[0], self.query.shape[0] // self.key.shape[0]


@dataclass(frozen=True)
class Gradients:
    """The incoming gradient ([heads, tokens, width]), and the sums of the outgoing ones."""

    out: Tensor
    query: Tensor
    key: Tensor
    value: Tensor


def block_attention(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, plan: AttentionPlan
) -> Tensor:
    """Return the attention of a row, [tokens, heads, width], with gradients.

    query: [heads, tokens, width]; key: [shared heads, tokens, width]; value: the same, possibly narrower;
    sinks: [heads] or None.
    """
    written_out = bool(plan.cap) or not plan.computes_on_cpu(query)
    pieces = attention_pieces(plan, scores_per_token=query.shape[0] if written_out else None)
    width = value.shape[-1]
    # The kernel needs equal widths of queries and values.
    if width < query.shape[-1]:
        value = torch.nn.functional.pad(value, (0, query.shape[-1] - width))
    how = _HowTo(pieces, plan.scale, plan.cap, written_out)
    out = cast(Tensor, cast(Any, _BlockAttention).apply(query, key, value, sinks, how))
    return out[..., :width].transpose(0, 1)


def invariant_attention(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, plan: AttentionPlan
) -> Tensor:
    """:func:`block_attention` on a CPU with the numbers of ``engine/invariance.py``, without sinks and caps.
    Gradients are those of plain blocks."""
    pieces = attention_pieces(plan, scores_per_token=query.shape[0])
    # The engine's sums begin at the first key. Whole products of hidden keys may be left out.
    blocks = [block._replace(keys_from=block.keys_from // KEYS * KEYS) for block in pieces.blocks]
    how = _HowTo(replace(pieces, blocks=blocks), plan.scale, 0.0, written_out=True, invariant=True)
    out = cast(Tensor, cast(Any, _BlockAttention).apply(query, key, value, sinks, how))
    return out.transpose(0, 1)


@dataclass(frozen=True)
class _HowTo:
    pieces: AttentionPieces
    scale: float
    cap: float
    written_out: bool
    invariant: bool = False


class _BlockAttention(torch.autograd.Function):
    """[heads, tokens, width] queries, keys, values and [heads] sinks → [heads, tokens, width]."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, how: _HowTo
    ) -> Tensor:
        wide = torch.promote_types(query.dtype, torch.float32)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        logsum = torch.empty(query.shape[:2], dtype=wide, device=query.device)
        row = AttentionRow(query, key, value, out, logsum, how.scale, how.cap)
        for part in how.pieces.padded:
            padded_forward(row, part)
        for part in how.pieces.prefixed:
            prefix_forward(row, part)
        for block in how.pieces.blocks:
            if how.invariant:
                invariant_forward(row, block)
            else:
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
        how: _HowTo = ctx.how
        row = AttentionRow(query, key, value, out, logsum, how.scale, how.cap)
        # A token's gradient is a sum over several parts, so it is accumulated at least in fp32.
        sums = (torch.zeros(t.shape, dtype=logsum.dtype, device=t.device) for t in (query, key, value))
        slopes = Gradients(gradients[0].contiguous(), *sums)
        for part in how.pieces.padded:
            padded_backward(row, slopes, part)
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


def padded_forward(row: AttentionRow, part: PaddedBlock) -> None:
    """Compute the attention of runs to themselves, written to ``out`` and ``logsum``."""
    if len(part.runs) == 1:
        run = part.runs[0]
        tokens = slice(run.start, run.start + run.length)
        out, logsum = _attend(row, tokens, tokens, causal=True)
        _grouped(row, row.out)[:, :, tokens] = out
        _grouped(row, row.logsum)[:, :, tokens] = logsum
        return
    query, key, value = (_padded(row, tensor, part) for tensor in (row.query, row.key, row.value))
    out, logsum = _forward(query, key, value, 0.0, True, scale=row.scale)
    # A memory plan has the row on torch's meta device.
    places = part.places[part.real].to(row.out.device)
    row.out.index_copy_(1, places, out.transpose(0, 1).flatten(1, 2).index_select(1, part.real))
    row.logsum.index_copy_(1, places, logsum.transpose(0, 1).flatten(1, 2).index_select(1, part.real))


def padded_backward(row: AttentionRow, slopes: Gradients, part: PaddedBlock) -> None:
    """Add the gradients of :func:`padded_forward`."""
    if len(part.runs) == 1:
        run = part.runs[0]
        tokens = slice(run.start, run.start + run.length)
        _attend_backward(row, slopes, tokens, tokens, causal=True)
        return
    tensors = (row.query, row.key, row.value, row.out, row.logsum[..., None])
    query, key, value, out, logsum = (_padded(row, tensor, part) for tensor in tensors)
    # The incoming gradient of padding is zero, so its outgoing gradients are too.
    grad = row.out.new_zeros(row.out.shape[0], len(part.places), row.out.shape[2])
    grad.index_copy_(1, part.real.to(grad.device), slopes.out.index_select(1, part.places[part.real]))
    grad = grad.unflatten(1, (len(part.runs), part.width)).transpose(0, 1)
    found = _backward(grad, query, key, value, out, logsum.squeeze(-1), 0.0, True, scale=row.scale)
    for total, found_part in zip((slopes.query, slopes.key, slopes.value), found, strict=True):
        flat = found_part.transpose(0, 1).flatten(1, 2)  # [heads, runs * width, width of a head]
        if total.shape[0] != flat.shape[0]:
            flat = flat.unflatten(0, row.groups).sum(1, dtype=total.dtype)
        total.index_add_(1, part.places.to(total.device), flat.to(total.dtype))


def prefix_forward(row: AttentionRow, part: PrefixBlock) -> None:
    """Compute the attention of runs to their prefix, merged with their attention to themselves."""
    tokens = slice(part.start, part.start + part.length)
    keys = slice(part.prefix, part.prefix + part.prefix_length)
    out, logsum = _attend(row, tokens, keys, causal=False)
    own, own_logsum = _grouped(row, row.out)[:, :, tokens], _grouped(row, row.logsum)[:, :, tokens]
    whole = torch.logaddexp(own_logsum, logsum)
    merged = own * (own_logsum - whole).exp()[..., None] + out * (logsum - whole).exp()[..., None]
    own.copy_(merged)
    own_logsum.copy_(whole)


def prefix_backward(row: AttentionRow, slopes: Gradients, part: PrefixBlock) -> None:
    """Add the gradients of :func:`prefix_forward`."""
    tokens = slice(part.start, part.start + part.length)
    keys = slice(part.prefix, part.prefix + part.prefix_length)
    _attend_backward(row, slopes, tokens, keys, causal=False)


def block_forward(row: AttentionRow, block: TokenBlock, *, written_out: bool) -> None:
    """Compute the complete attention of a block's tokens, written to ``out`` and ``logsum``."""
    tokens = _tokens(block)
    query, key, value = _block_tensors(row, block)
    if written_out:
        wide = row.logsum.dtype
        scores, _ = _scores(row, block, query, key)
        logsum = scores.logsumexp(-1)
        out = (scores - logsum[..., None]).exp() @ value.to(wide)
    else:
        out, logsum = _forward(query, key, value, 0.0, False, attn_mask=_mask(row, block), scale=row.scale)
    _grouped(row, row.out)[:, :, tokens] = out.to(row.out.dtype)
    _grouped(row, row.logsum)[:, :, tokens] = logsum


def invariant_forward(row: AttentionRow, block: TokenBlock) -> None:
    """:func:`block_forward` with the numbers of ``engine/invariance.py``."""
    tokens, (shared, group) = _tokens(block), row.groups
    query = _grouped(row, row.query)[:, :, tokens]
    hidden = block.hidden(query.device).expand(shared, group, -1, -1).flatten(1, 2)
    found = attend(query.flatten(1, 2), block.keys(row.key), block.keys(row.value), hidden, row.scale)
    out, logsum = (values.unflatten(1, (group, -1)) for values in found)
    _grouped(row, row.out)[:, :, tokens] = out.to(row.out.dtype)
    _grouped(row, row.logsum)[:, :, tokens] = logsum


def block_backward(row: AttentionRow, slopes: Gradients, block: TokenBlock, *, written_out: bool) -> None:
    """Add the gradients of :func:`block_forward`."""
    tokens = _tokens(block)
    query, key, value = _block_tensors(row, block)
    grad, out, logsum = (_grouped(row, t)[:, :, tokens] for t in (slopes.out, row.out, row.logsum))
    if written_out:
        wide = logsum.dtype
        query, key, value, grad, out = (t.to(wide) for t in (query, key, value, grad, out))
        scores, bend = _scores(row, block, query, key)
        shares = (scores - logsum[..., None]).exp()
        change = shares * (grad @ value.transpose(-1, -2) - (grad * out).sum(-1, keepdim=True)) * row.scale
        if bend is not None:
            change = change * bend
        found = (change @ key, change.transpose(-1, -2) @ query, shares.transpose(-1, -2) @ grad)
    else:
        mask = _mask(row, block).to(logsum.dtype)
        found = _backward(grad, query, key, value, out, logsum, 0.0, False, attn_mask=mask, scale=row.scale)
    _grouped(row, slopes.query)[:, :, tokens] += found[0]
    block.add_keys(slopes.key, found[1].sum(1, dtype=slopes.key.dtype))
    block.add_keys(slopes.value, found[2].sum(1, dtype=slopes.value.dtype))


def _attend(row: AttentionRow, tokens: slice, keys: slice, *, causal: bool) -> tuple[Tensor, Tensor]:
    query = _grouped(row, row.query)[:, :, tokens]
    key, value = _shared(row, row.key[:, keys]), _shared(row, row.value[:, keys])
    return _forward(query, key, value, 0.0, causal, scale=row.scale)


def _attend_backward(
    row: AttentionRow, slopes: Gradients, tokens: slice, keys: slice, *, causal: bool
) -> None:
    tensors = (slopes.out, row.query, row.out, row.logsum)
    grad, query, out, logsum = (_grouped(row, tensor)[:, :, tokens] for tensor in tensors)
    key, value = _shared(row, row.key[:, keys]), _shared(row, row.value[:, keys])
    found = _backward(grad, query, key, value, out, logsum, 0.0, causal, scale=row.scale)
    _grouped(row, slopes.query)[:, :, tokens] += found[0]
    slopes.key[:, keys] += found[1].sum(1, dtype=slopes.key.dtype)
    slopes.value[:, keys] += found[2].sum(1, dtype=slopes.value.dtype)


def _grouped(row: AttentionRow, tensor: Tensor) -> Tensor:
    """[heads, …] → [shared heads, heads of each, …], a view."""
    return tensor.unflatten(0, row.groups)


def _shared(row: AttentionRow, tensor: Tensor) -> Tensor:
    """[shared heads, …] → [shared heads, heads of each, …], a view."""
    return tensor[:, None].expand(-1, row.groups[1], *tensor.shape[1:])


def _padded(row: AttentionRow, tensor: Tensor, part: PaddedBlock) -> Tensor:
    """[heads, tokens, width] → [runs, all heads, longest run, width]."""
    found = tensor.index_select(1, part.places)
    if tensor.shape[0] != row.query.shape[0]:
        found = _shared(row, found).flatten(0, 1)
    return found.unflatten(1, (len(part.runs), part.width)).transpose(0, 1)


def _tokens(block: TokenBlock) -> slice:
    run: Segment = block.run
    return slice(run.start + block.first, run.start + block.last)


def _block_tensors(row: AttentionRow, block: TokenBlock) -> tuple[Tensor, Tensor, Tensor]:
    query = _grouped(row, row.query)[:, :, _tokens(block)]
    return query, _shared(row, block.keys(row.key)), _shared(row, block.keys(row.value))


def _mask(row: AttentionRow, block: TokenBlock) -> Tensor:
    hidden = block.hidden(row.query.device)
    mask = torch.zeros(hidden.shape, dtype=row.query.dtype, device=hidden.device)
    return mask.masked_fill_(hidden, float("-inf"))[None, None]


def _scores(row: AttentionRow, block: TokenBlock, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the scores of a block, at least in fp32, and their derivative with respect to the scores before
    the cap."""
    wide = row.logsum.dtype
    scores = (query.to(wide) @ key.to(wide).transpose(-1, -2)) * row.scale
    bend = None
    if row.cap:
        scores = torch.tanh(scores / row.cap)
        bend = 1 - scores**2
        scores = scores * row.cap
    return scores.masked_fill(block.hidden(scores.device), float("-inf")), bend
