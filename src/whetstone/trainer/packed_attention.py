"""Exact attention over flat rows of many sequences without a mask of the row.

A token attends to its own run up to itself, and to a prefix (``segments.py``). Attention over a union follows
from attention over its parts: with the logarithm of each part's sum of exponentials, the parts are weighted
and added. The gradients of a part are those of ordinary attention, given the output and the logarithm of the
whole (Liu et al., Ring Attention, arXiv 2310.01889, use both across devices; Juravsky et al., Hydragen, arXiv
2402.05099, for a shared prefix). So each part uses a kernel for ordinary attention, and memory grows linearly
with tokens. ``attention_kernels.py`` selects the kernel.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers import AttentionInterface

from whetstone.trainer.attention_blocks import invariant_attention
from whetstone.trainer.attention_kernels import Kernel, attention_kernel
from whetstone.trainer.segments import AttentionPlan

# The names of :func:`packed_attention` and :func:`invariant_packed_attention` in transformers.
PACKED = "whetstone_packed"
INVARIANT_PACKED = "whetstone_invariant_packed"


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
    kernel: Kernel | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface for one flat row.

    query: [1, heads, tokens, width], key and value: [1, shared heads, tokens, width], value possibly with
    another width; attention_mask: a table of runs (:func:`whetstone.trainer.segments.run_table`); kernel: by
    default that of the device. Returns [1, tokens, heads, width of value]. Dropout is not applied, because a
    trained policy has none.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    plan = AttentionPlan(attention_mask, sliding_window, scale, softcap or 0.0)
    # The gradient of an index would be a copy.
    row = (query.squeeze(0), key.squeeze(0), value.squeeze(0))
    kernel = kernel or attention_kernel(*row[:2], s_aux, plan)
    return kernel(*row, s_aux, plan)[None], None


def invariant_packed_attention(*inputs: Any, **settings: Any) -> tuple[Tensor, None]:
    """:func:`packed_attention` with the numbers of ``engine/invariance.py``, for layers without sinks and
    score caps."""
    return packed_attention(*inputs, **settings, kernel=invariant_attention)


# The pieces of a row are determined in Python. A compiled layer calls it between its own parts.
AttentionInterface.register(PACKED, cast(Any, torch.compiler.disable(packed_attention)))
AttentionInterface.register(INVARIANT_PACKED, cast(Any, torch.compiler.disable(invariant_packed_attention)))
