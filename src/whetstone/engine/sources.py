"""Where a model comes from, and what its files say of it before its weights are read. Torch-free."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whetstone.engine.architecture import check_architecture
from whetstone.errors import UserError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def check_source(path: str) -> Path | None:
    """The file or folder of a model, None for a hub id. Raises UserError for what can be none of these."""
    local = Path(path).expanduser()
    if local.is_dir() and not (local / "config.json").is_file():
        raise UserError(
            f"{local}: no config.json, so this is not a model folder; give the folder that "
            "save_pretrained (or `whetstone model convert`) wrote"
        )
    if local.is_file() and local.suffix != ".gguf":
        hint = "; run `whetstone model convert` on it first" if local.suffix in {".whl", ".zip"} else ""
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
    """A model that is not on this machine, and could not be fetched from the hub."""


def not_loadable(name: str, error: Exception, *, here: bool) -> UserError:
    """What transformers could not load, in our words. ``here``: a file or folder of this machine."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if here:
        return UserError(f"{name}: cannot be loaded as a causal language model: {reason}")
    return HubModelUnavailable(
        f"{name}: neither a folder here nor a model that could be fetched from the hub ({reason}). "
        f"Check the name and the network, or download the model elsewhere (`hf download {name} --local-dir "
        "FOLDER`) and give its folder; set HF_HUB_OFFLINE=1 to use only what is cached"
    )


def check_folder(path: str) -> int | None:
    """The context in tokens of a model in a folder of this machine; None for a file, a hub id, or no bound.

    Raises UserError for a model that is not there, and for one of another architecture than those that are
    trained here.
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
    # GPT-2 has its own name for it.
    positions = text.get("max_position_embeddings") or text.get("n_positions")
    return positions if isinstance(positions, int) else None
