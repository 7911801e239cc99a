"""Tiny runs on the CPU whose memory is planned, and measured by torch's own record of allocations.

``benchmarks/memory.py`` prints them as a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.settings import Sampling, read_settings
from whetstone.engine.architecture import rope_limits
from whetstone.engine.batches import Ticket
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.loading import LoadedModel
from whetstone.engine.memory import cache_limit
from whetstone.engine.scheduler import Scheduler
from whetstone.run.memory_plan import plan_memory
from whetstone.run.model_memory import GENERATION, PHASES
from whetstone.run.parts import build_trainer
from whetstone.run.recipe import Recipe, model_recipes
from whetstone.trainer.forward import Forward
from whetstone.trainer.memory import checkpoint_activations
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.trainer import Trainer

T = TypeVar("T")

PROMPT, REPLY, PROMPTS, REPLIES = 40, 24, 4, 8
GROUP = PROMPT + REPLIES * (REPLY - 1)
"""The tokens of a packed prompt with its replies."""

_SIZES: dict[str, Any] = {
    "vocab_size": 2000,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
_WINDOW = {"sliding_window": 24}
_LATENT: dict[str, Any] = {
    "q_lora_rank": 24,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 6,
    "head_dim": 8,
}


@dataclass(frozen=True)
class Case:
    """A model of a family with ``sizes`` other than the usual ones, and values of a recipe."""

    family: str
    sizes: dict[str, Any] = field(default_factory=dict[str, Any])
    dtype: str = "float32"
    trainer: dict[str, Any] = field(default_factory=dict[str, Any])
    algorithm: dict[str, Any] = field(default_factory=dict[str, Any])
    engine: dict[str, Any] = field(default_factory=dict[str, Any])

    def config(self) -> Any:
        """The configuration of the model."""
        known = AutoConfig.for_model(self.family).to_dict().keys() | self.sizes.keys()
        sizes = {**_SIZES, **self.sizes}
        return AutoConfig.for_model(self.family, **{k: v for k, v in sizes.items() if k in known})

    def model(self) -> Any:
        """A model with random weights, which never ends a reply."""
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(self.config(), dtype=getattr(torch, self.dtype)).eval()
        model.generation_config.eos_token_id = None
        return model

    def recipe(self, ranks: int = 1) -> Recipe:
        """The recipe of a run on the CPU. Each rank has four groups."""
        trainer = {
            "prompts_per_step": PROMPTS * ranks,
            "samples_per_prompt": REPLIES,
            "micro_batch_tokens": 2 * GROUP,
        }
        values = {
            "name": "memory",
            "model": {"path": "tiny", "dtype": self.dtype, "device": "cpu"},
            "data": {"train": "micro:train", "heldout": None},
            "environment": {"max_prompt_tokens": PROMPT},
            "sampling": {"max_tokens": REPLY},
            "algorithm": {"preset": "dapo", "overlong_buffer": 0, **self.algorithm},
            "engine": {"options": {"cache_mb": 32, **self.engine}},
            "trainer": {**trainer, **self.trainer},
            "machine": {"devices": ranks, "memory_gb": 1},
        }
        return read_settings(Recipe, values)


CASES = {
    "Llama": Case("llama"),
    "Llama, tied": Case("llama", {"tie_word_embeddings": True}),
    "Llama, bf16": Case("llama", dtype="bfloat16"),
    "Llama, bf16, tied, KL": Case(
        "llama", {"tie_word_embeddings": True}, dtype="bfloat16", algorithm={"kl_coef": 0.1}
    ),
    "Llama, checkpointed": Case("llama", trainer={"activation_checkpointing": True}),
    "Llama, one reply at a time": Case("llama", trainer={"micro_batch_tokens": PROMPT + REPLY}),
    "Llama, all at once": Case("llama", trainer={"micro_batch_tokens": 4 * GROUP}),
    "Llama, vocabulary of 30,000": Case("llama", {"vocab_size": 30_000}),
    "Llama, vocabulary of 30,000 in chunks": Case(
        "llama", {"vocab_size": 30_000}, trainer={"logits_per_chunk": 30_000 * 32}
    ),
    "Llama, LoRA": Case("llama", dtype="bfloat16", trainer={"lora": {"rank": 8}}),
    "Llama, cache of 2 MiB": Case("llama", engine={"cache_mb": 2}),
    "Qwen2, entropy bonus": Case("qwen2", algorithm={"entropy_coef": 0.01}),
    "Qwen3, KL": Case("qwen3", algorithm={"kl_coef": 0.1}),
    "Qwen3, bf16, checkpointed, KL": Case(
        "qwen3",
        dtype="bfloat16",
        trainer={"activation_checkpointing": True},
        algorithm={"kl_coef": 0.1},
    ),
    "Qwen3-MoE": Case("qwen3_moe", _EXPERTS),
    "Qwen3-MoE, bf16, checkpointed, KL": Case(
        "qwen3_moe",
        _EXPERTS,
        dtype="bfloat16",
        trainer={"activation_checkpointing": True},
        algorithm={"kl_coef": 0.1},
    ),
    "Mixtral, LoRA, checkpointed": Case(
        "mixtral",
        _EXPERTS,
        trainer={
            "lora": {"rank": 8, "targets": ["q_proj", "v_proj"]},
            "activation_checkpointing": True,
        },
    ),
    "DeepSeek-V3": Case("deepseek_v3", {**_EXPERTS, **_LATENT}),
    "Mistral with a window": Case("mistral", _WINDOW),
    "GPT-2, tied": Case(
        "gpt2", {"n_embd": 96, "n_layer": 4, "n_head": 6, "n_positions": 1024, "tie_word_embeddings": True}
    ),
    "GSPO": Case("llama", algorithm={"preset": "gspo"}),
}

_WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "vocab_size": 1000}

SHARDED = {
    "Llama, 2 ranks": (Case("llama", dtype="bfloat16"), 2),
    "Llama, float32, 8 ranks": (Case("llama"), 8),
    "wide Qwen3, checkpointed, 4 ranks": (
        Case(
            "qwen3",
            _WIDE,
            dtype="bfloat16",
            trainer={"activation_checkpointing": True, "micro_batch_tokens": GROUP},
        ),
        4,
    ),
    "Qwen3-MoE, 2 ranks": (Case("qwen3_moe", _EXPERTS, dtype="bfloat16"), 2),
}
"""Models of which each of some ranks has a part."""


def planned(case: Case) -> dict[str, int]:
    """Bytes of each phase, planned from the configuration."""
    recipe = case.recipe()
    [plan] = plan_memory(recipe, dict.fromkeys(model_recipes(recipe), case.config()))
    return {phase: plan.total(phase) for phase in PHASES}


def planned_rank(case: Case, ranks: int) -> int:
    """Bytes of an update on one of several ranks, planned from the configuration."""
    recipe = case.recipe(ranks)
    [plan] = plan_memory(recipe, dict.fromkeys(model_recipes(recipe), case.config()))
    rows = [row for name, row in plan.rows.items() if not name.startswith("engine")]
    return max(sum(row[phase] for row in rows) for phase in PHASES)


def measured(case: Case) -> dict[str, int]:
    """Bytes of generation and of a training step, with a real model and all the rest of a run in memory."""
    recipe = case.recipe()
    kept: list[Any] = []

    def build() -> None:
        trainer = build_trainer(recipe, LoadedModel(case.model(), None, "tiny"), Ranks())
        kept.extend((trainer, trainer.plain_copy()))

    _, held = allocated(build)
    trainer, copy = kept
    generation, _ = allocated(lambda: generate(recipe, copy))
    step, _ = allocated(lambda: train(trainer))
    return {GENERATION: held + generation, "step": held + step}


def measured_rank(case: Case, ranks: int) -> int:
    """Bytes of an update on one of several ranks, without an engine. The others do not exist: collectives
    return at once, as in no real group, so that the order of allocations is always the same."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("ranks",))
        group = Ranks(0, ranks, ranks, mesh, host_mesh=mesh)
        kept: list[Any] = []

        def build() -> None:
            model, settings = case.model(), case.recipe().trainer
            forward = Forward(model, temperature=1.0)
            if settings.activation_checkpointing:
                checkpoint_activations(model)
            forward.shard(group, trained=True)
            kept.extend((forward, MasterAdamW(model.named_parameters(), ranks=group)))

        _, held = allocated(build)
        return held + allocated(lambda: update(case, *kept))[0]
    finally:
        dist.destroy_process_group()


def update(case: Case, forward: Forward, optimizer: MasterAdamW) -> None:
    """Make an update of one full micro-batch."""
    limit = case.recipe().trainer.micro_batch_tokens
    group = PromptReplies([3] * PROMPT, [[5] * REPLY] * REPLIES)
    [batch] = forward.pack([group] * (limit // GROUP), limit)
    for scores in forward.scores(batch):
        scores.log_probs.sum().backward()
    optimizer.update(1e-6)


def generate(recipe: Recipe, model: Any) -> None:
    """Sample the replies of a step, each with as many tokens as it may have."""
    limit = cache_limit(recipe.engine.options["cache_mb"], 0)
    scheduler = Scheduler(model, _Endless(), max_batch=256, cache_bytes=limit, rope=rope_limits(model))
    for number in range(PROMPTS):
        params = Sampling(max_tokens=REPLY)
        scheduler.add(Ticket(GenerationRequest([5] * PROMPT, params, REPLIES, number)))
    while scheduler.busy:
        scheduler.step(0)


def train(trainer: Trainer) -> None:
    """Train on replies of the largest length."""
    sample = [
        Sample([5] * REPLY, [-1.0] * REPLY, [-1] * REPLY, "stop", "", reward=float(i % 2))
        for i in range(REPLIES)
    ]
    trainer.step(Batch([Group(str(number), [3] * PROMPT, sample) for number in range(PROMPTS)]))


def allocated(call: Callable[[], object]) -> tuple[int, int]:
    """The most bytes that torch's allocator gave out at once during ``call``, and those that are left."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    results: Any = record.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak, now


class _Endless:
    """A tokenizer without text and without an end."""

    eos_token_id = None

    def decode(self, *_: Any, **__: Any) -> str:
        return ""
