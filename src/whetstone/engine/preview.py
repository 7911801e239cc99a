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


def preview(path: str, *, revision: str | None = None, offline: bool = False) -> Preview:
    """Read the small files of a model folder, a .gguf file or a hub id.

    offline: only use local files. Raises UserError if there is no such model.
    """
    local = check_source(path)
    options: dict[str, Any] = {"revision": revision, "local_files_only": offline}
    name = path if local is None else str(local)
    if local is not None and local.is_file():
        name, options = str(local.parent), {"gguf_file": local.name, "local_files_only": offline}
    try:
        config = AutoConfig.from_pretrained(name, **options).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        raise load_error(path, error, here=local is not None) from error
    positions = getattr(config, "max_position_embeddings", None)
    return Preview(tokenizer, int(positions) if positions else None, str(config.model_type))
