"""Counts the memory of tensors while code runs, also on torch's meta device, which has none."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_GROUPED_MM: Any = torch.ops.aten._grouped_mm.default


class StorageTracker(TorchDispatchMode):
    """Counts the bytes of the storages that operations create inside its ``with`` block.

    held: existing tensors, such as weights, which do not count, and neither do views of them. Memory that a
    kernel uses internally is not seen. ``current``: bytes that exist now; ``peak``: the most since the start
    or the last :meth:`reset_peak`.
    """

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()
        self.current = 0
        self.peak = 0
        # A storage is known by its address, so the held ones must stay alive.
        self._held = [tensor.untyped_storage() for tensor in held]
        self._sizes: dict[int, int] = {_address(storage): 0 for storage in self._held}

    def reset_peak(self) -> int:
        """Return the peak, and start a new one at the current bytes."""
        peak, self.peak = self.peak, self.current
        return peak

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count new storages among its results."""
        run = _grouped_mm if func is _GROUPED_MM and args[0].is_meta else func
        result = run(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = _address(storage)
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.current += storage.nbytes()
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.current -= self._sizes.pop(key)


def _address(storage: Any) -> int:
    # Memory of the meta device has no address, but the objects that stand for it have one.
    return storage._cdata


def _grouped_mm(left: Tensor, right: Tensor, offsets: Tensor | None = None, *_: Any) -> Tensor:
    """Return the shape of a product of groups. torch's own function for meta tensors refuses fp32."""
    shape = (*left.shape[:-1], right.shape[-1])
    if left.dim() == right.dim() == 2 and offsets is not None:
        # The groups are parts of the common dimension, so each has a product.
        shape = (len(offsets), *shape)
    return left.new_empty(shape)
