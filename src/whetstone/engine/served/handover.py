"""New weights as model folders that a server reads, one at a time."""

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

from whetstone.engine.loading import save_model
from whetstone.engine.weights import copy_weights
from whetstone.errors import UserError
from whetstone.outputs import explained

_IN_MEMORY = Path("/dev/shm")
_NAME = "whetstone-weights-"
_OUTPUT = "output.safetensors"


class Handover:
    """Writes weights as whole model folders beneath one that is removed at the end.

    model: a plain one with the run's first weights; it is kept, on the CPU, to give the weights their places
    and the names that files have. place: a folder that the server sees under the same path; this machine's
    memory (``/dev/shm``) unless given. untied: where the output layer shares the weights of the input, it is
    written as one of its own.
    """

    def __init__(self, model: Any, tokenizer: Any, place: str | None, *, untied: bool = False) -> None:
        self._untied = untied
        disable_progress_bar()  # every update would draw one
        self._model = model.to("cpu")
        self._tokenizer = tokenizer
        try:
            parent = Path(place).expanduser().resolve() if place else _place_of(self._model)
            self.folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=parent))
        except OSError as error:
            raise UserError(
                f"{place or 'the folder of temporary files'}: {error.strerror}; name a folder "
                "that can be written in `engine.options.folder`"
            ) from None
        # A server may be another user's.
        self.folder.chmod(0o755)

    @property
    def dtype(self) -> str:
        """The dtype of the weights, as torch and the servers call it: that of the run's model."""
        return str(self._model.dtype).removeprefix("torch.")

    @contextmanager
    def now(self) -> Generator[Path]:
        """A folder with the weights that were taken last, or the first ones, while the block lasts.

        Raises UserError when there is no room for them.
        """
        folder = self.folder / "weights"
        try:
            save_model(self._model, self._tokenizer, folder)
            if self._untied:
                with explained(folder):
                    write_output_apart(self._model, folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def take(self, weights: Iterable[tuple[str, object]]) -> None:
        """Have these written from now on, every one of the model's by name. Raises ValueError when they do
        not fit the model."""
        copy_weights(self._model, weights)

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write_output_apart(model: Any, folder: Path) -> None:
    """Have a folder that :func:`save_model` wrote hold the weights of the output layer, too, if it has none
    of its own, and say so."""
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


def _remove_left() -> None:
    """Remove what our processes left in memory that were killed. Nobody else would."""
    for folder in _IN_MEMORY.glob(f"{_NAME}*"):
        pid = folder.name.removeprefix(_NAME).partition("-")[0]
        gone = pid.isdigit() and not Path(f"/proc/{pid}").exists()
        if gone and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def _place_of(model: Any) -> Path:
    """Memory, where it has room for two copies (a file is written beside the one that it replaces)."""
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    _remove_left()
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 2 * size:
        return _IN_MEMORY
    return Path(tempfile.gettempdir())
