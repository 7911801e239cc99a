"""A model without weights on torch's meta device, and what counts the memory that code would take there."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM
from transformers.initialization import no_init_weights

from whetstone.engine.architecture import check_architecture

_GROUPED_MM: Any = torch.ops.aten._grouped_mm.default


def meta_model(config: Any, dtype: torch.dtype, layers: int | None = None) -> Any:
    """Return a transformers model of ``config`` whose tensors have shapes but no memory.

    layers: the number of layers, of a model whose layers are all equal. Raises UserError for an untested
    architecture.
    """
    check_architecture(config)
    config = copy.deepcopy(config)
    text = config.get_text_config()
    if layers is not None:
        kinds = getattr(text, "layer_types", None)
        text.num_hidden_layers = layers
        text.layer_types = kinds and kinds[:layers]
    # transformers would search ids, which have no values, for it.
    text.pad_token_id = None
    text.rope_parameters = _without_lengths(getattr(text, "rope_parameters", None))
    with torch.device("meta"), no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    # Without initial values transformers does not do it.
    model.tie_weights()
    return model.eval()


def _without_lengths(rope: Any) -> Any:
    """Return rope parameters that do not depend on the length of a row, which a meta tensor cannot tell.

    Frequencies change no size.
    """
    if not isinstance(rope, Mapping):
        return rope
    parameters = cast("Mapping[str, Any]", rope)
    if "rope_type" not in parameters:
        return {kind: _without_lengths(inner) for kind, inner in parameters.items()}
    kept = {key: parameters[key] for key in ("rope_theta", "partial_rotary_factor") if key in parameters}
    return {"rope_type": "default", **kept}


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


class FusedAttention(TorchFunctionMode):
    """Gives attention the result of a fused kernel. On meta tensors torch would write out all scores."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, _, value = args[:3]
        return query.new_empty(*query.shape[:-1], value.shape[-1])
