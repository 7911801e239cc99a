"""What is known of a model before its weights are loaded: its tokenizer, its context, its architecture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from whetstone.engine.sources import check_source, not_loadable


@dataclass(frozen=True)
class Preview:
    """``context``: the tokens that prompt and reply may have together; None where the model sets no bound."""

    tokenizer: Any
    context: int | None
    model_type: str


def preview(path: str, *, revision: str | None = None, offline: bool = False) -> Preview:
    """Look at a model folder, a .gguf file or a hub id. Of the hub, only small files are fetched.

    offline: use only what is on this machine. Raises UserError when there is nothing to load under that name.
    """
    local = check_source(path)
    words: dict[str, Any] = {"revision": revision, "local_files_only": offline}
    name = path if local is None else str(local)
    if local is not None and local.is_file():
        name, words = str(local.parent), {"gguf_file": local.name, "local_files_only": offline}
    try:
        config = AutoConfig.from_pretrained(name, **words).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(name, **words)
    except (OSError, ValueError) as error:
        raise not_loadable(path, error, here=local is not None) from error
    positions = getattr(config, "max_position_embeddings", None)
    return Preview(tokenizer, int(positions) if positions else None, str(config.model_type))


def is_here(path: str) -> bool:
    """Whether a model is a file or a folder of this machine, and no hub id."""
    return Path(path).expanduser().exists()
