"""Packed attention through torch's variable-length flash attention, for accelerators.

To the kernel, a run is a sequence. One call computes the attention of all runs to themselves, and a second
one that of replies to their prompts, which are read once. Both results are merged as
``attention_kernels.py`` says. A window hides a part of the prompt that differs from token to token, which the
kernel only expresses for keys that are one sequence. Replies with a window therefore get copies of those keys
of their prompt that the window reaches.

The kernel's own autograd formula ignores the gradient of the logarithms, so the backward pass calls its
backward operation with the output and the logarithms of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor

from whetstone.trainer.segments import AttentionPlan, Segment, prefix_blocks

Rows = tuple[Tensor, ...]

# The most copied keys of a call, as a multiple of the row's tokens: bounds the memory of short replies with a
# long window.
_MAX_COPIES = 4

# Flash attention needs widths that are multiples of this.
_WIDTHS = 8


@dataclass(frozen=True)
class VarlenCall:
    """One call of a kernel: N sequences of queries, each with a sequence of keys.

    queries: the row positions of the queries. keys: those of the keys, a range or [k] positions.
    query_edges, key_edges: int32, [N + 1], the beginnings of the sequences, and the end of the last.
    longest: the most queries and the most keys of a sequence.
    window: how many keys before and after its own position a query sees, -1 for all; the last query of a
        sequence is at the position of the last key.
    keyless: bool, [q], the queries that have no key; None if all have some.
    merged: whether the result is added to that of earlier calls.
    """

    queries: slice
    keys: slice | Tensor
    query_edges: Tensor
    key_edges: Tensor
    longest: tuple[int, int]
    window: tuple[int, int]
    keyless: Tensor | None = None
    merged: bool = False

    @property
    def edges(self) -> tuple[Tensor, Tensor, int, int]:
        """The arguments of a kernel for the sequences."""
        return self.query_edges, self.key_edges, *self.longest

    @property
    def causal(self) -> bool:
        """Whether a query sees all keys up to its own position."""
        return self.window == (-1, 0)


def _forward(rows: Rows, call: VarlenCall, plan: AttentionPlan) -> tuple[Tensor, Tensor]:
    """Return the output for (queries, keys, values), [tokens, heads, width] each, which is 0 for queries
    without keys, and the [heads, tokens] logarithms of the sums of exponentials."""
    varlen: Any = import_module("torch.nn.attention.varlen")
    options = {"scale": plan.scale, "window_size": call.window, **_grouped_heads()}
    return varlen.varlen_attn(*rows, *call.edges, return_aux=varlen.AuxRequest(lse=True), **options)


@cache
def _grouped_heads() -> dict[str, bool]:
    """Return the option for fewer heads of keys than of queries: torch 2.11 takes them without an option."""
    varlen: Any = import_module("torch.nn.attention.varlen")
    known = "enable_gqa" in signature(varlen.varlen_attn).parameters
    return {"enable_gqa": True} if known else {}


def _backward(rows: Rows, logsum: Tensor, call: VarlenCall, plan: AttentionPlan) -> Rows:
    """Return the gradients of (queries, keys, values), from (gradient of the output, queries, keys, values,
    output) and the logarithms."""
    # Only dropout reads the random state.
    random = torch.empty(2, dtype=torch.uint64, device=logsum.device)
    how = (call.causal, random, plan.scale, list(call.window))
    return torch.ops.torch_attn._varlen_attn_backward(*rows, logsum, *call.edges, *how)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, plan: AttentionPlan
) -> Tensor:
    """Return the attention of a row by the kernel of ``torch.nn.attention.varlen``, with gradients; see
    :func:`whetstone.trainer.attention_blocks.block_attention`. ``plan`` has no bound of scores."""
    calls = plan.cached(query.device, lambda: varlen_calls(plan.runs, plan.window, query.device))
    width = value.shape[-1]
    wanted = -(-query.shape[-1] // _WIDTHS) * _WIDTHS
    rows = [
        t if t.shape[-1] == wanted else torch.nn.functional.pad(t, (0, wanted - t.shape[-1]))
        for t in (query, key, value)
    ]
    out = cast(Tensor, cast(Any, _VarlenAttention).apply(*rows, sinks, calls, plan))
    return out[..., :width]


class _VarlenAttention(torch.autograd.Function):
    """[heads, tokens, width] queries, keys, values and [heads] sinks → [tokens, heads, width]."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        calls: list[VarlenCall],
        plan: AttentionPlan,
    ) -> Tensor:
        rows = [tensor.transpose(0, 1) for tensor in (query, key, value)]
        parts = [_forward(_parts(rows, call), call, plan) for call in calls if not call.merged]
        outs, logsums = zip(*parts, strict=True)
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        logsum = logsums[0] if len(outs) == 1 else torch.cat(logsums, 1)
        for call in calls:
            if call.merged:
                _merge(out, logsum, _forward(_parts(rows, call), call, plan), call)
        # A sink is a key with value zero that every token attends to.
        if sinks is not None:
            whole = torch.logaddexp(logsum, sinks.to(logsum.dtype)[:, None])
            out.mul_((logsum - whole).exp().T[..., None].to(out.dtype))
            logsum = whole
        ctx.save_for_backward(query, key, value, sinks, out, logsum)
        ctx.how = (calls, plan)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, sinks, out, logsum = ctx.saved_tensors
        calls, plan = ctx.how
        grad = gradients[0].contiguous()
        rows = [tensor.transpose(0, 1) for tensor in (query, key, value)]
        sums = None if isinstance(calls[0].keys, slice) else _sums(rows, logsum.dtype)
        for call in calls:
            # The kernel reads the logarithms without strides.
            tokens, logarithms = call.queries, logsum[:, call.queries].contiguous()
            parts = (grad[tokens], *_parts(rows, call), out[tokens])
            found = _backward(parts, logarithms, call, plan)
            if sums is None:
                sums = found
                continue
            if call.merged:
                sums[0][tokens].add_(found[0])
            else:
                sums[0][tokens] = found[0]
            for total, part in zip(sums[1:], found[1:], strict=True):
                _add_rows(total, call.keys, part.to(total.dtype))
        to_sinks = None
        if sinks is not None:
            inner = (grad * out).sum(-1, dtype=logsum.dtype).T
            to_sinks = -((sinks.to(logsum.dtype)[:, None] - logsum).exp() * inner).sum(-1).to(sinks.dtype)
        slopes = (t.to(query.dtype).transpose(0, 1) for t in cast(Rows, sums))
        return *slopes, to_sinks, None, None


def _parts(rows: Sequence[Tensor], call: VarlenCall) -> Rows:
    query, key, value = rows
    keys = call.keys
    if isinstance(keys, slice):
        return query[call.queries], key[keys], value[keys]
    return query[call.queries], key.index_select(0, keys), value.index_select(0, keys)


def _merge(out: Tensor, logsum: Tensor, part: tuple[Tensor, Tensor], call: VarlenCall) -> None:
    """Add attention to other keys to ``out`` and ``logsum``, in place."""
    own, whole = out[call.queries], logsum[:, call.queries]
    # What a kernel returns for queries without keys is -inf or inf.
    other = part[1] if call.keyless is None else part[1].masked_fill(call.keyless, float("-inf"))
    share = torch.sigmoid(other - whole)
    own.lerp_(part[0], share.T[..., None].to(out.dtype))
    whole.copy_(torch.logaddexp(whole, other))


def _sums(rows: Sequence[Tensor], wide: torch.dtype) -> Rows:
    """Return empty gradients. Copied keys get several, which are added at least in fp32."""
    query, *others = rows
    return torch.empty_like(query), *(torch.zeros_like(t, dtype=wide) for t in others)


def _add_rows(total: Tensor, places: slice | Tensor, values: Tensor) -> None:
    if isinstance(places, slice):
        total[places].add_(values)
    else:
        total.index_add_(0, places, values)


def varlen_calls(runs: Sequence[Segment], window: int | None, device: torch.device) -> list[VarlenCall]:
    """Return the calls that compute the attention of a row; runs cover it without gaps.

    window: the most tokens that a token attends to, including itself; None for all.
    """
    runs = sorted(runs)
    row = slice(0, runs[-1].start + runs[-1].length)
    hides = window is not None and any(run.reach > window for run in runs)
    if hides and any(run.prefix_length for run in runs):
        return [_with_copied_keys(part, cast(int, window), device) for part in _windowed_parts(runs, window)]
    lengths = [run.length for run in runs]
    edges = _edges(lengths, device)
    seen = ((window or 0) - 1, 0) if hides else (-1, 0)
    own = VarlenCall(row, row, edges, edges, _longest(lengths, lengths), seen)
    return [own, *_prefix_calls(runs, device)]


def _prefix_calls(runs: Sequence[Segment], device: torch.device) -> list[VarlenCall]:
    """Return the call for the attention of runs to their prefixes, if there are any.

    Its queries are one range of the row. Tokens between them that have no prefix are sequences without keys.
    """
    blocks = prefix_blocks(runs)
    if not blocks:
        return []
    first, end = blocks[0].start, blocks[-1].start + blocks[-1].length
    queries: list[int] = []
    keys: list[int] = []
    keyless = torch.zeros(end - first, dtype=torch.bool)
    done = first
    for block in blocks:
        if block.start > done:
            queries.append(block.start - done)
            keys.append(0)
            keyless[done - first : block.start - first] = True
        queries.append(block.length)
        keys.append(block.prefix_length)
        done = block.start + block.length
    places = [slice(block.prefix, block.prefix + block.prefix_length) for block in blocks]
    return [
        VarlenCall(
            slice(first, end),
            places[0] if len(places) == 1 else _positions(places, device),
            _edges(queries, device),
            _edges(keys, device),
            _longest(queries, keys),
            (-1, -1),
            keyless.to(device) if bool(keyless.any()) else None,
            merged=True,
        )
    ]


def _windowed_parts(runs: Sequence[Segment], window: int | None) -> list[list[Segment]]:
    """Divide runs into parts whose keys, with copies, are bounded."""
    limit = _MAX_COPIES * sum(run.length for run in runs)
    parts: list[list[Segment]] = []
    copied = 0
    for run in runs:
        needed = min(run.prefix_length, (window or 1) - 1) + run.length
        if not parts or copied + needed > limit:
            parts.append([])
            copied = 0
        parts[-1].append(run)
        copied += needed
    return parts


def _with_copied_keys(runs: Sequence[Segment], window: int, device: torch.device) -> VarlenCall:
    places: list[slice] = []
    keys: list[int] = []
    for run in runs:
        end = run.prefix + run.prefix_length
        places += [
            slice(end - min(run.prefix_length, window - 1), end),
            slice(run.start, run.start + run.length),
        ]
        keys.append(min(run.prefix_length, window - 1) + run.length)
    queries = [run.length for run in runs]
    return VarlenCall(
        slice(runs[0].start, runs[-1].start + runs[-1].length),
        _positions(places, device),
        _edges(queries, device),
        _edges(keys, device),
        _longest(queries, keys),
        (window - 1, 0),
    )


def _edges(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)


def _longest(queries: Sequence[int], keys: Sequence[int]) -> tuple[int, int]:
    # Flash attention computes queries of one token in another way, with other strides of the logarithms.
    return max(2, *queries), max(keys)


def _positions(places: Sequence[slice], device: torch.device) -> Tensor:
    return torch.cat([torch.arange(place.start, place.stop) for place in places]).to(device)
