"""Writes new weights into an existing model, all or nothing; and copies a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.initialization import no_init_weights

from whetstone.core.errors import UserError


@dataclass(frozen=True)
class DeferredWeight:
    """A weight that is only computed on demand, in a given dtype, such as one that is sharded over ranks."""

    shape: torch.Size
    make: Callable[[torch.dtype], Tensor]


@dataclass(frozen=True)
class Patch:
    """A weight with changes to some elements: ``write`` writes them into the model's own tensor.

    ``positions`` returns the flat positions of these elements, some possibly more than once.
    """

    shape: torch.Size
    dtype: torch.dtype
    write: Callable[[Tensor], None]
    positions: Callable[[], Tensor]


WeightValue = Tensor | DeferredWeight | Patch
"""The forms in which a weight may be given."""


def write_weight(target: Tensor, weight: WeightValue) -> None:
    """Write a weight into the model's own tensor, cast to its dtype and device."""
    if isinstance(weight, Patch):
        weight.write(target)
    else:
        target.copy_(weight.make(target.dtype) if isinstance(weight, DeferredWeight) else weight)


def copy_weights(
    model: Any,
    tensors: Iterable[tuple[str, object]],
    write: Callable[[Tensor, WeightValue], None] = write_weight,
) -> None:
    """Copy named tensors into the model's own, in place, casting to its dtype and device.

    write: writes one weight, if the caller needs more than that.

    Each may be a :class:`DeferredWeight`, of which one exists at a time, or a :class:`Patch`, which leaves
    the rest of a tensor unchanged. Every parameter must be given; for tied parameters any of their names is
    sufficient. Persistent buffers may be given. Raises ValueError, with nothing changed, if a name is
    missing, unknown or given twice, if a shape (or a patch's dtype) differs, or if tied names have different
    values.
    """
    targets: dict[str, Tensor] = model.state_dict(keep_vars=True)
    given: dict[str, WeightValue] = {}
    for name, tensor in tensors:
        given[name] = _check_weight(name, tensor, targets, given)
    present = {id(targets[name]) for name in given}
    missing = [name for name, parameter in model.named_parameters() if id(parameter) not in present]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(f"weights: missing {', '.join(missing[:3])}{more}")
    pairs = _unique_pairs(targets, given)
    with torch.no_grad():
        for target, tensor in pairs:
            write(target, tensor)


def copy_model(
    model: Any, weights: Iterable[tuple[str, object]] | None = None, dtype: torch.dtype | None = None
) -> Any:
    """Return a copy of a model on the same device, in evaluation mode, without gradients.

    It is built from the config and then filled, because models with sharded or wrapped parameters (FSDP)
    cannot be deep-copied. weights, dtype: needed if ``model`` does not hold its weights whole or in its
    compute type. torch's random state is not changed.
    """
    config = copy.deepcopy(model.config)
    with torch.random.fork_rng(devices=[]), no_init_weights():
        twin = AutoModelForCausalLM.from_config(
            config, dtype=dtype or model.dtype, attn_implementation=model.config._attn_implementation
        )
    twin.tie_weights()
    twin = twin.to(model.device).eval().requires_grad_(False)
    copy_weights(twin, model.state_dict().items() if weights is None else weights)
    twin.generation_config = copy.deepcopy(model.generation_config)
    return twin


def folder_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of everything in the ``*.safetensors`` of a model folder.

    Raises UserError if there is none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder}: no model.safetensors; give a folder that save_pretrained wrote")
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield name, tensors.get_tensor(name)


def _check_weight(
    name: str, tensor: object, targets: dict[str, Tensor], given: dict[str, WeightValue]
) -> WeightValue:
    if name not in targets:
        raise ValueError(f"weights: the model has no tensor `{name}`")
    if name in given:
        raise ValueError(f"weights: `{name}` is given twice")
    if not isinstance(tensor, WeightValue):
        raise ValueError(f"weights: `{name}` is a {type(tensor).__name__}, not a tensor")
    if tensor.shape != targets[name].shape:
        raise ValueError(
            f"weights: `{name}` has shape {tuple(tensor.shape)}, the model's is {tuple(targets[name].shape)}"
        )
    if isinstance(tensor, Patch) and tensor.dtype != targets[name].dtype:
        raise ValueError(
            f"weights: `{name}` has changes of {tensor.dtype}, the model's {targets[name].dtype}"
        )
    return tensor


def _unique_pairs(
    targets: dict[str, Tensor], given: dict[str, WeightValue]
) -> list[tuple[Tensor, WeightValue]]:
    """Return (target, new value), one for each tensor of the model, even if it has several names."""
    pairs: dict[int, tuple[Tensor, WeightValue, str]] = {}
    for name, tensor in given.items():
        key = id(targets[name])
        if key not in pairs:
            pairs[key] = (targets[name], tensor, name)
            continue
        first, first_name = pairs[key][1:]
        if not _same(first, tensor):
            raise ValueError(f"weights: `{first_name}` and `{name}` are tied, but their values differ")
    return [(target, tensor) for target, tensor, _ in pairs.values()]


def _same(first: WeightValue, second: WeightValue) -> bool:
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return first is second
    return first.data_ptr() == second.data_ptr() or torch.equal(first, second)
