"""A model folder with the latest weights, which servers on this machine read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from msgspec import Struct
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from whetstone.core.errors import UserError
from whetstone.core.outputs import explained
from whetstone.engine.loading import save_model
from whetstone.engine.served.vllm_worker import INTEGERS, POSITIONS, VALUES, mapped_file, weight_files
from whetstone.engine.weights import DeferredWeight, Patch, WeightValue, copy_weights, write_weight

_IN_MEMORY = Path("/dev/shm")
_NAME = "whetstone-weights-"
# Beyond this share of changed elements all weights are written, which takes less time for each element.
_MOST_CHANGED = 1 / 16

_Changes = dict[str, tuple[Tensor, Tensor]]
"""The changed elements of each tensor: flat positions in ascending order, and new elements as integers."""


class WeightFiles(Struct, frozen=True):
    """A model folder, and a file with all elements that the last update changed; None if they are too many or
    unknown."""

    folder: Path
    changes: Path | None


class SharedFolder(Protocol):
    """The model folder of a server. ``folder``: a temporary folder of this process. ``dtype``: of the
    weights, as torch and the servers name it."""

    folder: Path

    @property
    def dtype(self) -> str: ...

    def update(self, weights: Iterable[tuple[str, object]]) -> None:
        """Replace the weights; every weight of the model must be given by name. Raises ValueError if they do
        not fit, with nothing changed."""
        ...

    def files(self) -> WeightFiles:
        """Write what is not written yet, and return the files with the latest weights. Raises UserError if
        there is no space for them."""
        ...

    def close(self) -> None:
        """Remove the files."""
        ...


class ModelFolder:
    """The SharedFolder of the process that writes it: a complete model folder inside a temporary folder.

    The weights of ``model`` are those of the files, mapped into memory: an update of the model is one of the
    files. If a file has other tensors than the model (some architectures are saved in another form), the
    files are written again for every update.

    model: a plain model with the run's initial weights. It is moved to host memory. parent_folder: a folder
    that the server sees under the same path; default: this machine's memory (``/dev/shm``). Raises UserError
    if the folder cannot be written.
    """

    def __init__(self, model: Any, tokenizer: Any, parent_folder: str | None) -> None:
        # Every update would draw a progress bar.
        disable_progress_bar()
        # Buffers that are not saved may be on the meta device, which cannot be moved.
        self._model = model if model.device.type == "cpu" else model.to("cpu")
        self._tokenizer = tokenizer
        self.folder = _temporary_folder(parent_folder, _size(self._model))
        self._weights = self.folder / "weights"
        self._changes_file = self.folder / "changes.safetensors"
        self._names: dict[int, str] | None = None
        """The name in the files of each of the model's tensors, by its identity; None if they differ."""
        self._stale = False
        self._changes: _Changes | None = None
        try:
            save_model(self._model, tokenizer, self._weights)
            self._map()
        except BaseException:
            self.close()
            raise

    @property
    def dtype(self) -> str:
        """The dtype of the run's model, as torch and the servers name it."""
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each weight by its names in the model."""
        named = self._model.state_dict(keep_vars=True).items()
        return {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in named}

    def files(self) -> WeightFiles:
        """See SharedFolder."""
        if self._stale:
            shutil.rmtree(self._weights, ignore_errors=True)
            save_model(self._model, self._tokenizer, self._weights)
            self._stale = False
        return WeightFiles(self._weights, None if self._changes is None else self._write(self._changes))

    def update(self, weights: Iterable[tuple[str, object]]) -> None:
        """See SharedFolder."""
        self._changes = None
        if self._names is None:
            self._stale = True
            copy_weights(self._model, weights)
            return
        names = self._names
        changes: _Changes = {}
        most = int(_MOST_CHANGED * sum(tensor.numel() for tensor in self._model.parameters()))
        changed = 0

        def write(target: Tensor, weight: WeightValue) -> None:
            nonlocal changed
            if isinstance(weight, Tensor) and weight.data_ptr() == target.data_ptr():
                # The folder's own tensor, which a replica has updated already.
                changed = most + 1
            if changed > most:
                write_weight(target, weight)
                return
            positions = _write_and_compare(target, weight)
            changed += len(positions)
            if len(positions):
                elements = target.view(-1).view(INTEGERS[target.element_size()])[positions]
                changes[names[id(target)]] = positions, elements

        copy_weights(self._model, weights, write)
        self._changes = changes if changed <= most else None

    def close(self) -> None:
        """See SharedFolder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, changes: _Changes) -> Path:
        tensors: dict[str, Tensor] = {}
        for name, (positions, elements) in changes.items():
            tensors[POSITIONS + name] = positions.int() if positions[-1] < 2**31 else positions
            tensors[VALUES + name] = elements
        with explained(self._changes_file):
            save_file(tensors, self._changes_file)
        return self._changes_file

    def _map(self) -> None:
        """Let the model's tensors be those of the files."""
        files: dict[str, Tensor] = {}
        for file in weight_files(self._weights):
            files |= mapped_file(file, writable=True)
        found: dict[int, str] = {}
        own: dict[str, Tensor] = self._model.state_dict(keep_vars=True)
        for name, tensor in own.items():
            file = files.get(name)
            if file is not None and (file.shape, file.dtype) == (tensor.shape, tensor.dtype):
                found[id(tensor)] = name
        if found.keys() != {id(tensor) for tensor in own.values()} or len(found) != len(files):
            return
        for tensor in own.values():
            tensor.data = files[found[id(tensor)]]
        self._names = found


class FollowedFolder:
    """The SharedFolder of a process whose machine has another one that writes it.

    path: of the model folder. dtypes: see ``ModelFolder``. parent_folder: of this process's own files.
    """

    def __init__(self, path: Path, dtype: str, dtypes: dict[str, str], parent_folder: str | None) -> None:
        self.folder = _temporary_folder(parent_folder, 0)
        self._path, self._dtype = path, dtype
        self._dtypes = {name: getattr(torch, each) for name, each in dtypes.items()}

    @property
    def dtype(self) -> str:
        """See SharedFolder."""
        return self._dtype

    def update(self, weights: Iterable[tuple[str, object]]) -> None:
        """Take part in the gathering of sharded weights."""
        for name, weight in weights:
            if isinstance(weight, DeferredWeight):
                weight.make(self._dtypes[name])

    def files(self) -> WeightFiles:
        """See SharedFolder. Only the writing process knows the changes."""
        return WeightFiles(self._path, None)

    def close(self) -> None:
        """Remove this process's own files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _write_and_compare(target: Tensor, weight: WeightValue) -> Tensor:
    """Write a weight, and return the flat positions whose elements may differ, in ascending order."""
    if isinstance(weight, Patch):
        # The target may have the new elements already, where a replica shares its tensors with the folder.
        weight.write(target)
        return weight.positions().unique()
    new = weight if isinstance(weight, Tensor) else weight.make(target.dtype)
    new = new.detach().to("cpu", target.dtype)
    width = INTEGERS[target.element_size()]
    positions = (new.contiguous().view(-1).view(width) != target.view(-1).view(width)).nonzero()[:, 0]
    target.copy_(new)
    return positions


def _temporary_folder(parent_folder: str | None, size: int) -> Path:
    """Create a folder for ``size`` bytes of weights. Raises UserError if it cannot be written."""
    try:
        parent = Path(parent_folder).expanduser().resolve() if parent_folder else _default_parent(size)
        folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise UserError(
            f"{parent_folder or 'the folder of temporary files'}: {error.strerror}; name a folder "
            "that can be written in `engine.options.folder`"
        ) from None
    # The server may run as another user.
    folder.chmod(0o755)
    return folder


def _size(model: Any) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _default_parent(size: int) -> Path:
    """Return memory if it has room for two copies, because a file is written before it replaces the old
    one."""
    for folder in _IN_MEMORY.glob(f"{_NAME}*"):
        pid = folder.name.removeprefix(_NAME).partition("-")[0]
        gone = pid.isdigit() and not Path(f"/proc/{pid}").exists()
        if gone and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 2 * size:
        return _IN_MEMORY
    return Path(tempfile.gettempdir())
