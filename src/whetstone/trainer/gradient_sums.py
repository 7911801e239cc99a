"""Gradients that are sums over tokens, made in fp32 where torch makes them in the dtype of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def with_fp32_sums(embedding: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    """A forward hook of an embedding: the gradient of a row is summed over its tokens in fp32, also on a CPU.

    torch's kernel for the CPU adds them in the dtype of the weights. In bf16 such a sum stops growing after a
    few hundred occurrences of a token. Other devices add in fp32, and need nothing here.
    """
    if output.device.type != "cpu" or output.dtype not in (torch.bfloat16, torch.float16):
        return output
    if not output.requires_grad:
        return output
    ids, places = arguments[0].unique(return_inverse=True)
    # Each row is read once, so the kernel has nothing to add: the selection makes the sum.
    return embedding.forward(ids).float()[places].to(output.dtype)
