"""Flash attention's variable-length operations, written out for the CPU under their names.

They stand in for the kernels of a GPU, so that everything around these runs on the CPU: torch's public
function, the calls that are made of a row, their merging, and the gradients.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def _sequences(
    rows: tuple[Tensor, ...], edges: tuple[Tensor, Tensor], window: tuple[int, int]
) -> Iterator[Any]:
    """Yield the queries, the keys, and the hidden pairs of each sequence."""
    query, key = rows[:2]
    assert query.shape[1] % key.shape[1] == 0
    assert query.shape[2] == key.shape[2] == rows[2].shape[2]
    assert query.shape[2] % 8 == 0
    assert all(edge.dtype == torch.int32 for edge in edges)
    assert (int(edges[0][-1]), int(edges[1][-1])) == (len(query), len(key))
    for number in range(len(edges[0]) - 1):
        q, k = (slice(int(edge[number]), int(edge[number + 1])) for edge in edges)
        queries, keys = q.stop - q.start, k.stop - k.start
        away = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
        hidden = torch.zeros(queries, keys, dtype=torch.bool)
        left, right = window
        hidden |= (away < -left) if left >= 0 else hidden
        hidden |= (away > right) if right >= 0 else hidden
        yield q, k, hidden


def _scores(query: Tensor, key: Tensor, hidden: Tensor, scale: float) -> Tensor:
    scores = (
        torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(query.shape[1] // key.shape[1], 1)) * scale
    )
    return scores.masked_fill(hidden, float("-inf"))


def forward(
    rows: tuple[Tensor, ...],
    edges: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    window: tuple[int, int],
    scale: float,
) -> tuple[Tensor, Tensor]:
    query, key, value = rows
    assert longest[0] > 1
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    # As flash attention 2 says it: the logarithm of a query without keys is infinite.
    logsum = torch.full((query.shape[1], len(query)), float("inf"), dtype=query.dtype)
    for q, k, hidden in _sequences(rows, edges, window):
        assert q.stop - q.start <= longest[0]
        assert k.stop - k.start <= longest[1]
        if k.stop > k.start:
            scores = _scores(query[q], key[k], hidden, scale)
            logsum[:, q] = scores.logsumexp(-1)
            values = value[k].repeat_interleave(query.shape[1] // key.shape[1], 1)
            out[q] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out, logsum


def backward(
    rows: tuple[Tensor, ...],
    logsum: Tensor,
    edges: tuple[Tensor, Tensor],
    window: tuple[int, int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grad, query, key, value, out = rows
    assert logsum.is_contiguous()
    share = query.shape[1] // key.shape[1]
    found = (torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value))
    for q, k, hidden in _sequences(rows[1:], edges, window):
        keys, values = (t[k].repeat_interleave(share, 1) for t in (key, value))
        scores = _scores(query[q], key[k], hidden, scale)
        shares = (scores - logsum[:, q, None]).exp()
        inner = (grad[q] * out[q]).sum(-1).T[..., None]
        change = shares * (torch.einsum("qhd,khd->hqk", grad[q], values) - inner) * scale
        found[0][q] = torch.einsum("hqk,khd->qhd", change, keys)
        for total, part in (
            (found[1], torch.einsum("hqk,qhd->khd", change, query[q])),
            (found[2], torch.einsum("hqk,qhd->khd", shares, grad[q])),
        ):
            total[k] = part.unflatten(1, (key.shape[1], share)).sum(2)
    return found


def _sides(left: int | None, right: int | None, causal: bool) -> tuple[int, int]:
    return (-1, 0) if causal else (-1 if left is None else left, -1 if right is None else right)


@contextmanager
def torch_kernels() -> Generator[None]:
    """A context in which torch has the operations of flash attention on the CPU."""

    def attend(
        q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *rest: Any, **options: Any
    ) -> Any:
        max_q, max_k, dropout, causal, _ = rest if len(rest) == 5 else (*rest, options["return_debug_mask"])
        assert dropout == 0.0
        window = _sides(options["window_size_left"], options["window_size_right"], causal)
        out, logsum = forward((q, k, v), (cu_q, cu_k), (max_q, max_k), window, options["scale"])
        none = torch.empty(0)
        return out, logsum, none, none, none

    def attend_backward(
        grad: Tensor, *rest: Any, scale: Any, window_size_left: int, window_size_right: int
    ) -> Any:
        q, k, v, out, logsum, cu_q, cu_k, _, _, dropout, causal, _, _ = rest
        assert dropout == 0.0
        window = _sides(window_size_left, window_size_right, causal)
        return backward((grad, q, k, v, out), logsum, (cu_q, cu_k), window, scale)

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", attend, "CPU")
        library.impl("_flash_attention_backward", attend_backward, "CPU")
        yield
