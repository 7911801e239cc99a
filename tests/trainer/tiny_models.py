"""Tiny models and samples that the trainer's tests share."""

from __future__ import annotations

import random
from typing import Any

import torch
from msgspec.structs import replace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from whetstone.core.sample import Batch, FinishReason, Group, Routing, Sample
from whetstone.trainer.trainer import Trainer

VOCABULARY = 61


def tiny_llama(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A two-layer Llama with weights large enough that attention matters."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**(settings | changes))).to(dtype)  # pyright: ignore[reportArgumentType]


def tiny_moe(dtype: torch.dtype = torch.float32, seed: int = 0) -> PreTrainedModel:
    """A two-layer Qwen3-MoE with four experts, of which a token meets two."""
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,  # pyright: ignore[reportCallIssue]
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Qwen3MoeForCausalLM(config).to(dtype)  # pyright: ignore[reportArgumentType]


def sample(ids: list[int], reward: float | None, finish: FinishReason = "stop") -> Sample:
    # Of other weights than any trainer's here, which makes no use of what an engine says of its own.
    return Sample(ids, [-1.0] * len(ids), [-1] * len(ids), finish, "", reward=reward)


def random_batch(seed: int = 0, groups: int = 3, replies: int = 4) -> Batch:
    """Groups of replies of 1 to 9 tokens with rewards of 0 and 1, both of which occur in each."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(low, high))]

    return Batch(
        [
            Group(str(g), ids(2, 7), [sample(ids(1, 9), float(i % 2)) for i in range(replies)])
            for g in range(groups)
        ]
    )


def routed(batch: Batch, seed: int = 0) -> Batch:
    """The same samples, as if random experts of ``tiny_moe`` had processed each token."""
    rng = random.Random(seed)

    def experts(tokens: int) -> Routing:
        pairs = [rng.sample(range(4), 2) for _ in range(2 * tokens)]
        return Routing(2, 2, False, bytes(number for pair in pairs for number in pair))

    def with_experts(group: Group) -> Group:
        samples = [replace(s, routing=experts(len(s.response_ids) - 1)) for s in group.samples]
        return replace(group, samples=samples, prompt_routing=experts(len(group.prompt_ids)))

    return replace(batch, groups=[with_experts(group) for group in batch.groups])


def first_gradients(
    trainer: Trainer, batch: Batch, *, applied: bool = True
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The gradients of a step's first update, caught before it is applied, and the step's metrics.

    applied: whether updates are made; otherwise the weights stay.
    """
    caught: dict[str, torch.Tensor] = {}
    optimizer = trainer.optimizer
    update = optimizer.update

    def catch(lr: float) -> float:
        named, gradients = trainer.model.named_parameters(), optimizer._gradients
        for (name, _), gradient in zip(named, gradients, strict=True):
            caught.setdefault(name, gradient.clone())
            if not applied:
                gradient.zero_()
        return update(lr) if applied else 0.0

    optimizer.update = catch
    try:
        return caught, trainer.step(batch)
    finally:
        optimizer.update = update
