"""The source of a model, and checks of its files before its weights are read. Torch-free."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.architecture import check_architecture

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def check_source(path: str) -> Path | None:
    """Return the file or folder of a model, None for a hub id. Raises UserError for anything else."""
    local = Path(path).expanduser()
    if local.is_dir() and not (local / "config.json").is_file():
        raise UserError(
            f"{local}: no config.json, so this is not a model folder; give the folder that "
            "save_pretrained (or `whetstone export`) wrote"
        )
    if local.is_file() and local.suffix != ".gguf":
        hint = "; run `whetstone export` on it first" if local.suffix in {".whl", ".zip"} else ""
        raise UserError(f"{local}: not a .gguf file nor a model folder{hint}")
    if local.exists():
        return local
    if path.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(path):
        raise UserError(f"{path}: no such file or folder; give a model folder, a .gguf file or a hub id")
    above = local.parent
    if above != Path() and above.is_dir():
        raise UserError(
            f"{path}: no such folder in {above}/; give a model folder, or rename {above}/ if this is a hub id"
        )
    return None


class HubModelUnavailable(UserError):
    """A model that is not on this machine and could not be downloaded from the hub."""


def load_error(name: str, error: Exception, *, here: bool) -> UserError:
    """Return the error for a model that transformers could not load. ``here``: it is a local file or
    folder."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if here:
        return UserError(f"{name}: cannot be loaded as a causal language model: {reason}")
    return HubModelUnavailable(
        f"{name}: neither a local folder nor a model that could be downloaded from the hub ({reason}). "
        f"Check the name and the network, or download the model elsewhere (`hf download {name} --local-dir "
        "FOLDER`) and give its folder; set HF_HUB_OFFLINE=1 to use only what is cached"
    )


def check_folder(path: str) -> int | None:
    """Return the context in tokens of a local model folder; None for a file, a hub id, or no limit.

    Raises UserError for a missing model, and for an unsupported architecture.
    """
    folder = check_source(path)
    if folder is None or folder.is_file():
        return None
    file = folder / "config.json"
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
        kind, text = config["model_type"], config.get("text_config", config)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file}: not the configuration of a model: {type(error).__name__}: {error}"
        ) from None
    layers = SimpleNamespace(layer_types=text.get("layer_types"))
    check_architecture(SimpleNamespace(model_type=kind, get_text_config=lambda: layers))
    # GPT-2 uses another name.
    positions = text.get("max_position_embeddings") or text.get("n_positions")
    return positions if isinstance(positions, int) else None
