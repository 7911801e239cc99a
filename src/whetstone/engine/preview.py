"""What is known about a model before its weights are loaded: configuration, tokenizer, context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from huggingface_hub import constants
from huggingface_hub.utils import get_session
from transformers import AutoConfig, AutoTokenizer

from whetstone.engine.sources import check_source, load_error

_WAIT_S = 5.0


@dataclass(frozen=True)
class Preview:
    """``context``: the most tokens of prompt and reply together; None if the model sets no limit."""

    tokenizer: Any
    context: int | None
    model_type: str


def model_config(path: str, *, revision: str | None = None) -> Any:
    """Return the transformers configuration of a model folder, a .gguf file or a hub id.

    ``config.json`` of a hub id is downloaded if it is not here and the hub answers. Raises UserError if there
    is no such model.
    """
    here = check_source(path) is not None
    try:
        return _read_config(path, revision, offline=True)
    except (OSError, ValueError) as error:
        if here or not _hub_answers():
            raise load_error(path, error, here=here) from error
    try:
        return _read_config(path, revision, offline=False)
    except (OSError, ValueError) as error:
        raise load_error(path, error, here=False) from error


def _read_config(path: str, revision: str | None, *, offline: bool) -> Any:
    name, options = _source(path, revision, offline=offline)
    return AutoConfig.from_pretrained(name, **options)


def _hub_answers() -> bool:
    """Return whether the hub can be reached. A download would be tried several times before it fails."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_WAIT_S)
    # Each version of huggingface_hub has the errors of another HTTP library.
    except Exception:
        return False
    return True


def preview(path: str, *, revision: str | None = None, offline: bool = False) -> Preview:
    """Read the small files of a model folder, a .gguf file or a hub id.

    offline: only use local files. Raises UserError if there is no such model.
    """
    name, options = _source(path, revision, offline=offline)
    try:
        read = (
            AutoConfig.from_pretrained(name, **options) if offline else model_config(path, revision=revision)
        )
        config = read.get_text_config()
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
