"""A tiny random model of a given architecture, with a tokenizer made here: what needs no network.

The architecture is that of ``transformers``' own class, so whatever depends on it (attention, rotary
positions, experts, names of modules) is as in the model that it stands for; only the numbers are small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from whetstone.engine.scratch import build_tokenizer
from whetstone.engine.sources import check_source
from whetstone.errors import UserError

VOCABULARY = 1024
CONTEXT = 4096

_FAMILIES = (
    (r"Qwen3-(Coder-)?\d+B-A\d+B", "qwen3_moe"),
    (r"Qwen3-\d", "qwen3"),
    (r"(DeepSeek-R1-Distill-Qwen|Qwen2|DeepCoder)", "qwen2"),
    (r"SmolLM3", "smollm3"),
    (r"(SmolLM|DeepSeek-R1-Distill-Llama|Llama-[23]|Meta-Llama-3)", "llama"),
    (r"Mistral-7B", "mistral"),
    (r"gemma-2", "gemma2"),
    (r"Phi-(3|4)", "phi3"),
)
"""Architectures of models by the beginning of their names on the hub, for machines without a network."""

_SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": True,
}
_CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def architecture_of(path: str) -> str:
    """The architecture (``model_type``) of a model in a folder or file, or of a hub id that is known.

    Raises UserError for another hub id: nothing is fetched.
    """
    local = check_source(path)
    if local is not None:
        folder, words = (local, {}) if local.is_dir() else (local.parent, {"gguf_file": local.name})
        return str(AutoConfig.from_pretrained(str(folder), **words).get_text_config().model_type)
    name = Path(path).name
    for pattern, family in _FAMILIES:
        if re.match(pattern, name, re.IGNORECASE):
            return family
    raise UserError(
        f"{path}: not here, and its architecture is not known by its name; give `model.path` a folder with "
        "its config.json"
    )


def build_miniature(model_type: str, texts: Iterable[str], seed: int) -> tuple[Any, PreTrainedTokenizerFast]:
    """A random fp32 model of that architecture, some hundred thousand parameters, and a byte-level tokenizer
    of ``texts`` with a chat template. torch's global random state is left as it was.

    Raises UserError for an architecture that transformers does not know.
    """
    tokenizer = build_tokenizer(texts, VOCABULARY)
    tokenizer.chat_template = _CHAT
    try:
        known = AutoConfig.for_model(model_type).to_dict()
    except (KeyError, ValueError):
        raise UserError(f"transformers knows no architecture `{model_type}`") from None
    ids = {
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    small = {key: value for key, value in _SMALL.items() if key in known}
    config = AutoConfig.for_model(model_type, **small, **ids)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval(), tokenizer
