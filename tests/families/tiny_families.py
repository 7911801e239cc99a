"""A tiny random model of every family that can be run and trained, with what is special to it switched on."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 61
WINDOW = 5
"""Shorter than the sequences of the tests, so that a window that is not heeded changes their numbers."""

_MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0, 3.0, 5.0, 9.0],
    "original_max_position_embeddings": 64,
}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "head_dim": 4,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"use_sliding_window": True, **_MIXED},
    "qwen3": {"use_sliding_window": True, **_MIXED},
    "qwen3_moe": {**_EXPERTS, "decoder_sparse_step": 1, "norm_topk_prob": True},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 16},
    "mistral": {"sliding_window": WINDOW},
    "mixtral": {"num_local_experts": 4, "sliding_window": WINDOW},
    "ministral": _MIXED,
    "gemma": {},
    "gemma2": {**_MIXED, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0},
    "gemma3_text": _MIXED,
    "gemma4_text": {
        **_MIXED,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY,
        "final_logit_softcapping": 2.0,
    },
    "phi": {},
    "phi3": {"sliding_window": WINDOW, "rope_parameters": _LONGROPE},
    "gpt_oss": {**_MIXED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": {**_LATENT, "topk_method": "group_limited_greedy"},
    "deepseek_v3": _LATENT,
    "granite": {
        "logits_scaling": 4.0,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.5,
        "embedding_multiplier": 2.0,
    },
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "logits_scaling": 4.0},
    "smollm3": {"use_sliding_window": True, **_MIXED, "no_rope_layers": [1, 0]},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "cohere2": {"logit_scale": 0.25, **_MIXED},
    "olmo": {"clip_qkv": 0.5},
    "olmo2": {},
    "olmo3": _MIXED,
    "starcoder2": {"sliding_window": WINDOW},
    "glm": {},
    "glm4": {},
    "glm4_moe": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "use_qk_norm": True,
    },
    "gpt2": {},
    "gpt_neox": {},
    "gptj": {"rotary_dim": 4},
    "stablelm": {"use_qkv_bias": True, "qk_layernorm": True},
    "seed_oss": {},
    "exaone4": _MIXED,
    "ernie4_5": {},
    "hunyuan_v1_dense": {},
}


DIFFERENT = ("llama", "qwen3_moe", "deepseek_v3", "mistral", "gemma2", "phi3")
"""Families that prove most together: dense, experts, latent attention, window, soft caps and long RoPE."""


def tiny_family(name: str, seed: int = 0) -> Any:
    """A random model of a family, fp32, in evaluation mode, with weights so large that attention matters."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **(settings | FAMILIES[name]))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():  # what a fresh model leaves at zero or one would hide that it is not heeded
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model
