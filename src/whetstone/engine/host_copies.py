"""Copies between a device and the host for which the host does not wait, where torch can do this (CUDA)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# The most tensors in pinned memory on their way to the host. Pinned memory cannot be swapped out.
_UNDER_WAY = 2


def pinned(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy of a tensor of the host that ``device`` can read without the host's waiting for it."""
    made = torch.empty(tensor.shape, dtype=dtype or tensor.dtype, pin_memory=device.type == "cuda")
    return made.copy_(tensor)


def start_copy(tensor: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Any]:
    """Start to copy ``tensor`` to the host. Returns the copy, and on CUDA an event: then it is complete."""
    cuda = tensor.device.type == "cuda"
    copy = torch.empty(tensor.shape, dtype=dtype or tensor.dtype, pin_memory=cuda)
    copy.copy_(tensor, non_blocking=cuda)
    # torch keeps the tensor's memory until the copy is complete, even if the tensor is freed.
    return copy, torch.cuda.current_stream(tensor.device).record_event() if cuda else None


class HostCopies:
    """Copies tensors of a device to the host while the device continues.

    What is done with a copy is done by a later call, or by :meth:`finish`.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Tensor, Any, Callable[[Tensor], object]]] = deque()

    def start(
        self, tensor: Tensor, use: Callable[[Tensor], object], dtype: torch.dtype | None = None
    ) -> None:
        """Start to copy ``tensor``; ``use`` gets the copy once it is complete, and must not keep it.

        dtype: that of the copy from a device; a tensor of the host is given to ``use`` as it is.
        """
        if tensor.device.type == "cpu":
            use(tensor)
            return
        self._waiting.append((*start_copy(tensor, dtype), use))
        while len(self._waiting) > _UNDER_WAY:
            self._complete_oldest()

    def finish(self) -> None:
        """Wait for all copies, and use them."""
        while self._waiting:
            self._complete_oldest()

    def _complete_oldest(self) -> None:
        copy, event, use = self._waiting.popleft()
        if event is not None:
            event.synchronize()
        use(copy)
