"""Runs inside vLLM's workers (``--worker-extension-cls``): writes new weights into the loaded model.

A server that is started here gets a copy of this file, since Whetstone is not in its environment. So it only
imports the standard library, torch and vLLM. It reads files that the trainer writes in this machine's memory:
all weights (safetensors, mapped), or the changed elements.

vLLM joins and shards weights, so a tensor of the files is in several places of the model, or partly there.
The places are found by a load that copies nothing: it records the destination of each copy and compares its
contents. Weights are written in place only if every tensor of the files was found in the model unchanged.
"""

from __future__ import annotations

import importlib
import json
import mmap
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_POPULATE_WRITE = 23
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers that hold every bit pattern of an element, by its bytes."""
POSITIONS, VALUES = "positions:", "values:"
"""The names of a tensor's changed positions (flat) and new elements in a file of changes, before its name."""


@dataclass
class _Place:
    """A part of a tensor of the files in the model.

    target: a view of a parameter. offset, stride: of the part in the elements of the whole tensor.
    """

    target: Tensor
    offset: int
    stride: tuple[int, ...]

    def part(self, whole: Tensor) -> Tensor:
        """Return the part of a tensor of the files, as a view."""
        return whole.as_strided(self.target.shape, self.stride, whole.storage_offset() + self.offset)

    def write(self, positions: Tensor, elements: Tensor) -> None:
        """Write the elements of the whole tensor at flat ``positions`` that are in this part.

        elements: of the same width as the target's, as integers, so that every bit pattern is kept.
        """
        target = self.target.view(elements.dtype)
        rest = positions - self.offset
        if self.offset == 0 and target.is_contiguous() and self.stride == target.stride():
            inside = rest < target.numel()
            target.view(-1)[rest[inside]] = elements[inside]
            return
        inside = rest >= 0
        index: list[Tensor] = [torch.zeros_like(rest)] * target.dim()
        for dim in sorted(range(target.dim()), key=lambda dim: -self.stride[dim]):
            size, stride = target.shape[dim], self.stride[dim]
            if size == 1:
                continue
            index[dim] = rest.div(stride, rounding_mode="floor")
            inside &= (index[dim] >= 0) & (index[dim] < size)
            rest = rest % stride
        inside &= rest == 0
        target[tuple(each[inside] for each in index)] = elements[inside]


class WeightWriter:
    """The calls that a server's worker gets for weight updates; each is one for vLLM's ``collective_rpc``.

    A call returns a dict with ``error``, because an exception would end the server.
    """

    def whetstone_open(self, folder: str) -> dict[str, str]:
        """Find the weights of a model folder in the loaded model, which must have them already."""
        return _caught(self._whetstone_open, folder)

    def whetstone_write(self, folder: str, changes: str) -> dict[str, str]:
        """Write the changed elements in the file ``changes``, or all weights of ``folder`` without it."""
        return _caught(self._whetstone_write, folder, changes)

    def _whetstone_open(self, folder: str) -> None:
        self._whetstone_files = _MappedFolder()
        tensors = self._whetstone_files.tensors(folder)
        self._whetstone_places = _find_places(cast(Any, self).model_runner.get_model(), tensors)

    @torch.inference_mode()
    def _whetstone_write(self, folder: str, changes: str) -> None:
        places = self._whetstone_places
        if changes:
            found = mapped_file(Path(changes))
            names = [name.removeprefix(POSITIONS) for name in found if name.startswith(POSITIONS)]
            for name in names:
                device = places[name][0].target.device
                positions = found[POSITIONS + name].to(device).long()
                elements = found[VALUES + name].to(device)
                for place in places[name]:
                    place.write(positions, elements)
        else:
            for name, whole in self._whetstone_files.tensors(folder).items():
                for place in places[name]:
                    place.target.copy_(place.part(whole))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()


def _caught(call: Any, *arguments: str) -> dict[str, str]:
    try:
        call(*arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


class _MappedFolder:
    """The ``*.safetensors`` of a folder, mapped again only if a file was replaced."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, dict[str, Tensor]]] = {}

    def tensors(self, folder: str) -> dict[str, Tensor]:
        """Return all tensors by name."""
        tensors: dict[str, Tensor] = {}
        for file in weight_files(folder):
            number = file.stat().st_ino
            if self._files.get(str(file), (0,))[0] != number:
                self._files[str(file)] = number, mapped_file(file)
            tensors |= self._files[str(file)][1]
        return tensors


def weight_files(folder: str | Path) -> list[Path]:
    """Return the files of a model folder that have its weights."""
    return sorted(Path(folder).glob("*.safetensors"))


def mapped_file(file: Path, *, writable: bool = False) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, mapped into memory. ``writable``: writing changes the file.

    The file consists of the length of a JSON header, the header, and the elements.
    """
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    with file.open("r+b" if writable else "rb") as opened:
        data = mmap.mmap(opened.fileno(), 0, access=access)
    if writable:
        # Otherwise the first update would wait for each page. Linux before 5.14 cannot.
        with suppress(OSError):
            data.madvise(_POPULATE_WRITE)
    size = int.from_bytes(data[:8], "little")
    tensors: dict[str, Tensor] = {}
    with warnings.catch_warnings():
        # torch warns of a read-only mapping. Nothing writes to its tensors.
        warnings.simplefilter("ignore")
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
            start, end = entry["data_offsets"]
            if start == end:
                tensors[name] = torch.empty(shape, dtype=dtype)
                continue
            flat = torch.frombuffer(
                data, dtype=dtype, count=(end - start) // dtype.itemsize, offset=8 + size + start
            )
            tensors[name] = flat.view(shape)
    return tensors


@torch.inference_mode()
def _find_places(model: Any, tensors: dict[str, Tensor]) -> dict[str, list[_Place]]:
    """Return where each tensor is in the model. Raises ValueError if one is not there, or not unchanged."""
    places: dict[str, list[_Place]] = {}
    for name, whole in tensors.items():
        found: list[_Place] = []
        with _copies_recorded(name, whole, found):
            model.load_weights([(name, whole)])
        if not found:
            raise ValueError(f"`{name}` is copied nowhere")
        places[name] = found
    return places


@contextmanager
def _copies_recorded(name: str, whole: Tensor, found: list[_Place]) -> Generator[None, None, None]:
    """Record each copy of a part of ``whole`` into a parameter, instead of making it."""
    original = torch.Tensor.copy_
    storage = whole.untyped_storage().data_ptr()

    def record(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if source.untyped_storage().data_ptr() != storage or source.dtype != whole.dtype:
            raise ValueError(f"`{name}` is transformed before it is copied")
        if target.shape != source.shape or target.dtype != source.dtype:
            raise ValueError(f"`{name}` is {source.dtype}, and {target.dtype} in the model")
        integers = INTEGERS[source.dtype.itemsize]
        if not torch.equal(target.view(integers).to(source.device), source.view(integers)):
            raise ValueError(f"`{name}` is not in the model as it is in the file")
        offset = int(source.storage_offset() - whole.storage_offset())
        found.append(_Place(target, offset, source.stride()))
        return target

    torch.Tensor.copy_ = record  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.copy_ = original  # type: ignore[method-assign]


def _keep_plain_weights_on_cpus() -> None:
    """Let linear layers on a CPU multiply with their own weights.

    Of its own accord vLLM packs them once and drops them, so that nothing can be written into them. It also
    keeps a packed copy of an output layer that shares the input's weights, and does not update that copy.
    """
    if not importlib.import_module("vllm.platforms").current_platform.is_cpu():
        return
    utils: Any = importlib.import_module("vllm.model_executor.layers.utils")
    packed = utils.dispatch_cpu_unquantized_gemm

    def plain(layer: Any, remove_weight: bool) -> None:
        if layer.weight.dim() == 2 and not layer.weight.is_meta:
            layer.cpu_linear = torch.nn.functional.linear
        else:
            packed(layer, remove_weight)

    utils.dispatch_cpu_unquantized_gemm = plain


if "vllm.v1.worker.worker_base" in sys.modules:
    # In a worker, before it loads its model. Elsewhere the module is imported for its constants.
    _keep_plain_weights_on_cpus()
