"""Shaping of the reward by a reply's length."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_overlong_penalty(lengths: Tensor, max_tokens: int, buffer: int) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), to be added to the reward.

    lengths: [n] reply tokens. Returns [n] float64: 0 up to ``max_tokens - buffer`` tokens, then falling
    linearly to -1 at ``max_tokens``, and -1 beyond. ``buffer`` 0 switches it off.

    Raises ValueError unless 0 <= buffer <= max_tokens.
    """
    if not 0 <= buffer <= max_tokens:
        raise ValueError(f"a buffer of {buffer} tokens does not fit replies of at most {max_tokens}")
    if buffer == 0:
        return torch.zeros(lengths.shape, dtype=torch.float64, device=lengths.device)
    over = lengths.to(torch.float64) - (max_tokens - buffer)
    return -(over / buffer).clamp(0.0, 1.0)
