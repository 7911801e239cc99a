"""Loads and saves models: a Hugging Face folder, a hub id, or a GGUF file.

The result is always a plain model: ``save_model`` can write it and transformers can load it again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.optional_packages import install_command
from whetstone.core.outputs import new_folder
from whetstone.engine.architecture import check_architecture
from whetstone.engine.device import pick_device, resolve_dtype
from whetstone.engine.out_of_memory import WEIGHTS_KEYS, describe_weights, explain_out_of_memory
from whetstone.engine.preview import model_config
from whetstone.engine.sources import check_source, load_error

DTYPES: dict[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in evaluation mode, its tokenizer, and their source.

    ``model`` and ``tokenizer`` are transformers objects, which have no precise types.
    """

    model: Any
    tokenizer: Any
    source: str


def load_model(
    path: str, *, revision: str | None = None, dtype: str = "auto", device: str = "auto"
) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    path: a folder as ``save_pretrained`` writes it, a ``.gguf`` file, or a hub id.
    revision: branch, tag or commit of a hub id.
    dtype: ``bfloat16``, ``float16`` or ``float32``; ``auto`` is the first if the device supports it.
    device: ``auto`` (the GPU if there is one), or a torch device name.

    Raises UserError if there is no such model, or it is no causal language model.
    """
    if dtype != "auto" and dtype not in DTYPES:
        known = ("auto", *DTYPES)
        raise UserError(f"unknown dtype `{dtype}`{did_you_mean(dtype, known)}; known: {', '.join(known)}")
    if not sys.stderr.isatty():
        # A log file would contain every state of a progress bar.
        disable_progress_bar()
    target = pick_device(device)
    computed = DTYPES[resolve_dtype(dtype, target)]
    local = check_source(path)
    if local is not None and local.is_file():
        model, tokenizer = _load_gguf(local, computed)
    else:
        model, tokenizer = _load_pretrained(path if local is None else str(local), revision, computed)
    with explain_out_of_memory("loading the model", target, lambda: describe_weights(model), WEIGHTS_KEYS):
        return LoadedModel(model.to(target).eval(), tokenizer, path)


def save_model(model: Any, tokenizer: Any, folder: str | Path) -> None:
    """Write config.json, generation_config.json, model.safetensors and the tokenizer to ``folder``.

    Writes all or nothing. The folder must be new or empty. Raises UserError if it cannot be written.
    """
    with new_folder(Path(folder).expanduser()) as target:
        model.save_pretrained(target, safe_serialization=True)
        tokenizer.save_pretrained(target)


def _load_pretrained(name: str, revision: str | None, dtype: torch.dtype) -> tuple[Any, Any]:
    try:
        # Read the config first, so that an unsupported architecture is refused before its weights are read.
        # A hub that does not answer is found out here, at once.
        check_architecture(model_config(name, revision=revision))
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=dtype)
        _make_savable(model.generation_config)
    except (OSError, ValueError) as error:
        raise load_error(name, error, here=Path(name).is_dir()) from error
    return model, tokenizer


def _make_savable(config: GenerationConfig) -> None:
    """Correct common errors in a generation config, which transformers reads but refuses to write.

    Those are settings of sampling without its switch, and a pad token below 0. Raises ValueError for others.
    """
    if (config.pad_token_id or 0) < 0:
        config.pad_token_id = None
    try:
        config.validate(strict=True)
    except ValueError:
        config.do_sample = True
        config.validate(strict=True)


def _load_gguf(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    # Newer transformers may keep the weights packed unless told; older ones always unpack.
    unpack = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)}
        if hasattr(transformers, "GgufConfig")
        else {}
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        quantized = AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=dtype, **unpack
        )
    except ImportError as error:
        raise UserError(f"{file}: {error}; {install_command('train')}") from error
    except Exception as error:
        # A broken file may raise errors of several libraries.
        raise UserError(f"{file}: transformers cannot read this GGUF file: {error}") from error
    return _plain_copy(quantized, tokenizer, dtype), tokenizer


def _plain_copy(quantized: Any, tokenizer: Any, dtype: torch.dtype) -> Any:
    """Return the same weights in a model that transformers does not treat as quantised.

    A model loaded from GGUF keeps a ``quantization_config`` and refuses ``save_pretrained``, although its
    tensors are dense.
    """
    fields = quantized.config.to_dict()
    # With it, the copy would be taken for a quantised model again.
    fields.pop("quantization_config", None)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.dtype = dtype
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    ids = {
        f"{role}_token_id": getattr(tokenizer, f"{role}_token_id")
        for role in ("bos", "eos", "pad")
        if getattr(tokenizer, f"{role}_token_id") is not None
    }
    ids.setdefault("pad_token_id", ids.get("eos_token_id"))
    model.generation_config = GenerationConfig(**ids)
    return model
