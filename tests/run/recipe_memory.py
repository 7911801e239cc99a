"""The memory plans of recipes, from the dimensions of the public models that they name.

The dimensions are those of ``config.json`` on the hub. ``benchmarks/memory.py --recipes`` prints the plans as
the table of ``docs/scaling.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoConfig

from whetstone.core.shipped_recipes import shipped_names
from whetstone.run.memory_plan import DevicePlan, plan_memory
from whetstone.run.model_memory import PHASES
from whetstone.run.recipe import Recipe, load_recipe, model_recipes, stage_recipes

_QWEN: dict[str, Any] = {"vocab_size": 151_936, "tie_word_embeddings": False}
_MODELS: dict[str, dict[str, Any]] = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        **_QWEN,
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 131_072,
    },
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": {
        **_QWEN,
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct-1M": {
        **_QWEN,
        "model_type": "qwen2",
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 1_010_000,
    },
    "Qwen/Qwen3-4B-Instruct-2507": {
        **_QWEN,
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-8B": {
        **_QWEN,
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
    },
    "Qwen/Qwen3-30B-A3B-Instruct-2507": {
        **_QWEN,
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "max_position_embeddings": 262_144,
    },
    "models/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}


PLANNED = [name for name in shipped_names() if load_recipe(name).machine is not None]
"""The recipes that name their machine."""

_COLUMNS = ("recipe", "a device of", "memory", *PHASES)


def recipe_plans(name: str, overrides: Sequence[str] = ()) -> list[tuple[Recipe, DevicePlan]]:
    """The plans of each stage of a recipe that ships."""
    plans: list[tuple[Recipe, DevicePlan]] = []
    for stage in stage_recipes(load_recipe(name, overrides)):
        config = {model: _config(each.model.path or "") for model, each in model_recipes(stage).items()}
        plans += [(stage, plan) for plan in plan_memory(stage, config)]
    return plans


def recipe_table(names: Sequence[str]) -> list[str]:
    """The lines of a table with the GB of each phase, for each stage and kind of device."""
    lines = [f"| {' | '.join(_COLUMNS)} |", f"| {' | '.join(['---'] * len(_COLUMNS))} |"]
    for name in names:
        for stage, plan in recipe_plans(name):
            role = plan.title.removeprefix("each of ").removeprefix("the device of the ")
            sizes = [f"{plan.total(phase) / 1e9:.1f}" if phase in plan.phases else "" for phase in PHASES]
            memory = f"{plan.machine.device_bytes / 1e9:.0f}"
            lines.append(f"| {' | '.join([f'`{stage.name}`', role, memory, *sizes])} |")
    return lines


def _config(path: str) -> Any:
    fields = dict(_MODELS[path])
    return AutoConfig.for_model(fields.pop("model_type"), **fields)
