"""The language-model head of a decoding step on a CPU, in float32.

The head is the widest matrix of a model. For the few rows of a step, a CPU library divides the product of
the whole matrix badly; products of pieces of it take about a third less time (``benchmarks/generation.md``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# The rows of the matrix in a piece. A piece then fits into the processor's caches for usual widths.
_PIECE = 2048


@contextmanager
def head_in_pieces(model: Any) -> Generator[None]:
    """Let the head of ``model`` compute its logits in pieces, without gradients. Other devices, dtypes and
    kinds of heads remain as they are."""
    head = model.get_output_embeddings()
    # A subclass, or a head with hooks of an adapter, may do more than a product.
    if type(head) is not nn.Linear or head.weight.device.type != "cpu" or head.weight.dtype != torch.float32:
        yield
        return
    # A module calls this attribute instead of the method of its class.
    forward: Any = partial(product_in_pieces, head.weight, head.bias)
    head.forward = forward
    try:
        yield
    finally:
        del head.forward


def product_in_pieces(weight: Tensor, bias: Tensor | None, values: Tensor) -> Tensor:
    """Return what ``linear(values, weight, bias)`` returns. weight: [vocabulary, width], bias: [vocabulary],
    values: [..., width]."""
    rows = values.flatten(0, -2)
    result = rows.new_empty(len(rows), len(weight))
    for first in range(0, len(weight), _PIECE):
        piece = slice(first, first + _PIECE)
        torch.mm(rows, weight[piece].t(), out=result[:, piece])
    if bias is not None:
        result += bias
    return result.view(*values.shape[:-1], -1)
