"""Tiny models of several architectures, built from their configs, and a byte tokenizer."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 300
EOS = 256

_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False},
    # Sliding windows much shorter than the sequences, and (Gemma) layers of two kinds.
    "mistral": {"num_key_value_heads": 1, "sliding_window": 8},
    "gemma3_text": {
        "num_key_value_heads": 1,
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    # Frequencies that depend on the length of the sequence: other ones beyond 20 tokens, far from the first.
    "phi3": {
        "num_key_value_heads": 2,
        "original_max_position_embeddings": 20,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 8,
            "long_factor": [1.5 + i for i in range(8)],
        },
    },
    "qwen2": {
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    },
}


def tiny_model(architecture: str, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model with random weights; ``changes`` are fields of its configuration."""
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": None,
        # Large enough for next-token distributions that are far from uniform.
        "initializer_range": 0.3,
    }
    config = AutoConfig.for_model(architecture, **{**fields, **_ARCHITECTURES[architecture], **changes})
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte b is token b in the order of the byte alphabet; 256 ends a sequence; the rest have no text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
