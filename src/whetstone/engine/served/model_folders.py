"""Writes new weights as model folders that a server reads, one at a time."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers.utils.logging import disable_progress_bar

from whetstone.core.errors import UserError
from whetstone.core.outputs import explained
from whetstone.engine.loading import save_model
from whetstone.engine.weights import copy_weights

_IN_MEMORY = Path("/dev/shm")
_NAME = "whetstone-weights-"
_OUTPUT = "output.safetensors"


class ModelFolderWriter:
    """Writes weights as complete model folders in a temporary folder.

    model: a plain model with the run's initial weights. It stays on the CPU, and provides shapes and file
    names. parent_folder: a folder that the server sees under the same path; default: this machine's memory
    (``/dev/shm``). untied: write an output layer that shares the input's weights as a separate layer.
    """

    def __init__(
        self, model: Any, tokenizer: Any, parent_folder: str | None, *, untied: bool = False
    ) -> None:
        self._untied = untied
        # Every update would draw a progress bar.
        disable_progress_bar()
        self._model = model.to("cpu")
        self._tokenizer = tokenizer
        try:
            parent = (
                Path(parent_folder).expanduser().resolve() if parent_folder else _default_parent(self._model)
            )
            self.folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=parent))
        except OSError as error:
            raise UserError(
                f"{parent_folder or 'the folder of temporary files'}: {error.strerror}; name a folder "
                "that can be written in `engine.options.folder`"
            ) from None
        # The server may run as another user.
        self.folder.chmod(0o755)

    @property
    def dtype(self) -> str:
        """The dtype of the run's model, as torch and the servers name it."""
        return str(self._model.dtype).removeprefix("torch.")

    @contextmanager
    def current_folder(self) -> Generator[Path]:
        """A folder with the latest weights for the duration of the block.

        Raises UserError if there is no space for them.
        """
        folder = self.folder / "weights"
        try:
            save_model(self._model, self._tokenizer, folder)
            if self._untied:
                with explained(folder):
                    untie_output_layer(self._model, folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def update(self, weights: Iterable[tuple[str, object]]) -> None:
        """Replace the weights; every weight of the model must be given by name. Raises ValueError if they do
        not fit."""
        copy_weights(self._model, weights)

    def close(self) -> None:
        """Remove the written files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def untie_output_layer(model: Any, folder: Path) -> None:
    """Add the weights of the output layer to a folder of :func:`save_model` if it shares the input's, and set
    the config accordingly."""
    layer = model.get_output_embeddings()
    if layer is None or layer.weight is not model.get_input_embeddings().weight:
        return
    name = next(name for name, module in model.named_modules() if module is layer) + ".weight"
    save_file({name: layer.weight.detach()}, folder / _OUTPUT, metadata={"format": "pt"})
    index = folder / "model.safetensors.index.json"
    if index.exists():
        listed = json.loads(index.read_text())
        listed["weight_map"][name] = _OUTPUT
        index.write_text(json.dumps(listed))
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config))


def _remove_stale_folders() -> None:
    """Remove folders of killed processes from memory, since nothing else would."""
    for folder in _IN_MEMORY.glob(f"{_NAME}*"):
        pid = folder.name.removeprefix(_NAME).partition("-")[0]
        gone = pid.isdigit() and not Path(f"/proc/{pid}").exists()
        if gone and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def _default_parent(model: Any) -> Path:
    """Return memory if it has room for two copies, because a file is written before it replaces the old
    one."""
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    _remove_stale_folders()
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 2 * size:
        return _IN_MEMORY
    return Path(tempfile.gettempdir())
