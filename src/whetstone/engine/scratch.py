"""Tiny models with random weights, and byte-level BPE tokenizers for them; they need no network.

``build_scratch`` makes a Llama of the sizes in a recipe. ``build_miniature`` makes a small model of a given
architecture from ``transformers``' class, so attention, rotary positions, experts and module names are those
of the real model. All are ordinary Hugging Face objects, so code for trained models also works with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

from whetstone.core.errors import UserError
from whetstone.engine.settings import ScratchModel
from whetstone.engine.sources import check_source

# Outside ASCII, so that no program in ASCII can spell a special token and end its own reply.
EOS = "⟨eos⟩"
PAD = "⟨pad⟩"


def build_scratch(
    settings: ScratchModel, texts: Iterable[str], seed: int
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Build a model with seeded fp32 weights, and a tokenizer with merges learned from ``texts``.

    Equal arguments give equal weights and merges. torch's global random state is not changed.
    """
    tokenizer = build_tokenizer(texts, settings.vocab_size)
    config = scratch_config(settings)
    config.vocab_size = len(tokenizer)
    config.eos_token_id = tokenizer.backend_tokenizer.token_to_id(EOS)
    config.pad_token_id = tokenizer.backend_tokenizer.token_to_id(PAD)
    return _random_model(config, seed), tokenizer


def scratch_config(settings: ScratchModel) -> LlamaConfig:
    """Return the configuration of a model from scratch, with the largest vocabulary that it may get."""
    return LlamaConfig(
        vocab_size=settings.vocab_size,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        max_position_embeddings=settings.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Build a byte-level BPE tokenizer of at most ``vocab_size`` tokens, with an end and a padding token.

    Every byte is a token, so any text can be encoded and decoded exactly.
    """
    tokenizer = Tokenizer(models.BPE())
    # A digit is one token wherever it stands, so that a number of the statement is copied, not translated.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        # The decoder is exact; "cleaning" would remove spaces from programs.
        clean_up_tokenization_spaces=False,
    )


VOCABULARY = 1024
CONTEXT = 4096

# Architectures by the beginning of a model's hub name, for machines without a network.
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
    """Return the architecture (``model_type``) of a model in a folder or file, or of a known hub id.

    Raises UserError for any other hub id: nothing is downloaded.
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
        f"{path}: not on this machine, and its architecture is not known from its name; set "
        "`model.path` to a folder with "
        "its config.json"
    )


def build_miniature(model_type: str, texts: Iterable[str], seed: int) -> tuple[Any, PreTrainedTokenizerFast]:
    """Build a random fp32 model of that architecture with some hundred thousand parameters, and a byte-level
    tokenizer of ``texts`` with a chat template. torch's global random state is not changed.

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
    return _random_model(config, seed), tokenizer


def _random_model(config: PretrainedConfig, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval()
