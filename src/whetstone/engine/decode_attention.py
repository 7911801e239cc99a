"""Attention of one new token a row over its cached keys, in operations of fixed shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

# The name of :func:`decode_attention` in transformers.
DECODE = "whetstone_decode"

_FULL, _SLIDING = "full_attention", "sliding_attention"


def decode_masks(config: Any, lengths: Tensor, columns: int, dtype: torch.dtype) -> Any:
    """Return what is added to the scores of ``columns`` keys of each row's newest token: 0 for those that it
    attends to, else minus infinity; in the form that the model's forward takes.

    lengths: [rows], the tokens before the newest one. The result is [rows, 1, 1, columns], or one such tensor
    for each kind of layer.
    """
    text = config.get_text_config()
    place = torch.arange(columns, device=lengths.device)
    visible = place <= lengths[:, None]
    kinds = set(getattr(text, "layer_types", None) or ())
    window = getattr(text, "sliding_window", None)

    def added(seen: Tensor) -> Tensor:
        hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
        return hidden[:, None, None]

    if not kinds and window is None:
        return added(visible)
    # Some configurations have a window that no layer uses.
    windowed = visible if window is None else visible & (place > lengths[:, None] - window)
    if not kinds:
        return added(windowed)
    seen = {_FULL: visible, _SLIDING: windowed}
    return {kind: added(seen[kind]) for kind in sorted(kinds)}


def decode_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return attention ([rows, 1, heads, value_dim]) as transformers' interface wants it.

    query: [rows, heads, 1, head_dim]; key and value: [rows, kv_heads, columns, ...]; attention_mask: see
    :func:`decode_masks`; s_aux: [heads], scores of a key without a value. Heads that share keys are the rows
    of one product, so keys are not copied for each head.
    """
    rows, heads, _, width = query.shape
    shared = key.shape[1]
    scale = width**-0.5 if scaling is None else scaling
    grouped = query.reshape(rows, shared, heads // shared, width)
    if softcap is None and s_aux is None:
        mask = attention_mask.expand(rows, shared, heads // shared, -1)
        found = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
    else:
        # In fp32, as torch's kernels compute it.
        exact = torch.promote_types(query.dtype, torch.float32)
        scores = (grouped @ key.transpose(2, 3)).to(exact) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = scores + attention_mask
        if s_aux is not None:
            sinks = s_aux.to(exact).reshape(1, shared, -1, 1).expand(rows, -1, -1, -1)
            scores = torch.cat([scores, sinks], dim=-1)
        found = scores.softmax(-1)[..., : key.shape[2]].to(value.dtype) @ value
    return found.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(DECODE, decode_attention)
