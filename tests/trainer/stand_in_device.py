"""A device that is none: tensors there are tensors of the CPU that say they are elsewhere.

torch's private-use device, registered from Python. Operations compute on the CPU what they would compute, and
refuse what an accelerator refuses: operands on two devices. So code that makes a tensor in the wrong place
fails, on a machine without any accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "elsewhere"

_CROSSING = {"aten._to_copy.default", "aten.copy_.default"}
"""Operations that take operands of two devices: copies."""

_INDEXING = {"aten.index.Tensor", "aten.index_put_.default", "aten.index_put.default"}
"""Operations whose indices may lie on the CPU."""


class Elsewhere(Tensor):
    """A tensor on the stand-in device; ``here`` is the one that it is made of."""

    here: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        made: Any = Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), dtype=here.dtype, device=torch.device(f"{NAME}:0")
        )
        made.here = here
        return made

    def __repr__(self, **_: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"elsewhere({self.here!r})"

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled():  # there, what is made of other operations comes as one
            made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        name = str(func)
        _check_devices(name, args, kwargs)
        leaves = name in _CROSSING and not _is_elsewhere(kwargs.get("device", f"{NAME}:0"))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        inner = pytree.tree_map_only(Elsewhere, lambda t: t.here, (args, kwargs))
        out = func(*inner[0], **inner[1])
        if leaves:
            return out
        wrapped = pytree.tree_map_only(Tensor, Elsewhere, out)
        return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _is_elsewhere(device: Any) -> bool:
    return torch.device(device).type == NAME


def _check_devices(name: str, args: Any, kwargs: Any) -> None:
    if name in _CROSSING:
        return
    operands = args[:1] if name in _INDEXING else (args, kwargs)
    for tensor in pytree.tree_leaves(operands):
        if isinstance(tensor, Tensor) and not isinstance(tensor, Elsewhere) and tensor.dim() > 0:
            raise RuntimeError(f"{name}: operands on two devices, {NAME} and {tensor.device}")


def _factory(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> Tensor:
        return Elsewhere(call(*args, device="cpu", **kwargs))

    return make


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """What torch copies by where it goes past the tensors' own class."""
    given, taking = (t.here if isinstance(t, Elsewhere) else t for t in (source, target))
    taking.copy_(given)
    return target


@cache
def stand_in_device() -> torch.device:
    """The device, registered once for this process."""
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("aten", "IMPL")
    operations = torch.ops.aten
    for name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"):
        base, _, overload = name.partition(".")
        call = getattr(getattr(operations, base), overload or "default")
        library.impl(name, _factory(call), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    stand_in_device.library = library  # type: ignore[attr-defined]  # it ends with its object
    return torch.device(NAME, 0)


def moved(model: Any) -> Any:
    """The model with its parameters and buffers there."""
    stand_in_device()
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                there = Elsewhere(parameter.detach())
                module._parameters[key] = torch.nn.Parameter(there, requires_grad=parameter.requires_grad)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = Elsewhere(buffer)
    return model
