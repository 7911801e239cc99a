"""What is known about a model before its weights are loaded: tokenizer, context, architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from whetstone.engine.sources import check_source, load_error


@dataclass(frozen=True)
class Preview:
    """``context``: the most tokens of prompt and reply together; None if the model sets no limit."""

    tokenizer: Any
    context: int | None
    model_type: str


def model_config(path: str, *, revision: str | None = None, offline: bool = False) -> Any:
    """Return the transformers configuration of a model folder, a .gguf file or a hub id.

    offline: only use local files; otherwise ``config.json`` of a hub id is downloaded if it is not here.
    Raises UserError if there is no such model.
    """
    local = check_source(path)
    name, options = _source(path, revision, offline=offline)
    try:
        return AutoConfig.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        raise load_error(path, error, here=local is not None) from error


def preview(path: str, *, revision: str | None = None, offline: bool = False) -> Preview:
    """Read the small files of a model folder, a .gguf file or a hub id.

    offline: only use local files. Raises UserError if there is no such model.
    """
    config = model_config(path, revision=revision, offline=offline).get_text_config()
    name, options = _source(path, revision, offline=offline)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        raise load_error(path, error, here=check_source(path) is not None) from error
    positions = getattr(config, "max_position_embeddings", None)
    return Preview(tokenizer, int(positions) if positions else None, str(config.model_type))


def _source(path: str, revision: str | None, *, offline: bool) -> tuple[str, dict[str, Any]]:
    """Return the name and the options with which transformers reads the small files of a model."""
    local = check_source(path)
    if local is None:
        return path, {"revision": revision, "local_files_only": offline}
    if local.is_file():
        return str(local.parent), {"gguf_file": local.name, "local_files_only": offline}
    return str(local), {"revision": revision, "local_files_only": offline}
