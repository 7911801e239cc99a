"""Predicts the device memory of a trainer's rank from the configuration of its model.

Weights, gradients and moments follow from the shapes of the parameters. The memory of a micro-batch is counted
by running its forward and backward pass on torch's meta device, where tensors have shapes and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.errors import UserError
from whetstone.engine.meta_model import meta_model
from whetstone.engine.storage_tracker import StorageTracker
from whetstone.trainer.forward import Forward
from whetstone.trainer.log_probs import LOGITS_PER_CHUNK
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.memory import checkpoint_activations
from whetstone.trainer.packing import MicroBatch, PromptReplies
from whetstone.trainer.segments import plan_for_cpu
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.sharding import blocks

# Bytes of a token that a step keeps on the device: weight, engine's log-prob, version, reply, whether it is
# written, advantage, and the log-probs before the step and under the reference.
_TOKEN_BYTES = 4 + 4 + 8 + 8 + 1 + 4 + 4 + 4


@dataclass(frozen=True)
class StepShape:
    """The largest step of a rank.

    prompt_tokens, reply_tokens: the longest. groups, replies: groups of an update on this rank, and replies of
    each. step_tokens: reply tokens of the whole step on all ranks.
    """

    prompt_tokens: int
    reply_tokens: int
    groups: int
    replies: int
    step_tokens: int


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes on the device of one rank.

    weights: all parameters as they are kept between passes, and buffers. masters: fp32 copies of them.
    gradients, moments: of trained parameters. reference: the frozen model of a KL penalty.
    gathered: of several ranks, what passes collect from the others, with gradients on their way.
    activations: what a forward pass of the largest micro-batch keeps for its backward pass. temporary: the
    most on top of it: logits of a chunk, or results inside a layer. forward_only: the most in a pass without
    gradients. tokens: of a whole step. largest_weight: the largest tensor in the compute dtype.
    """

    weights: int
    masters: int
    gradients: int
    moments: int
    reference: int
    gathered: int
    activations: int
    temporary: int
    forward_only: int
    tokens: int
    largest_weight: int


def trainer_memory(
    config: Any,
    dtype: torch.dtype,
    spec: Algorithm,
    settings: TrainerSection,
    shape: StepShape,
    *,
    ranks: int = 1,
    on_cpu: bool = False,
) -> TrainerMemory:
    """Return the memory of a rank that trains a model of ``config`` (a transformers configuration).

    on_cpu: whether the device is a CPU. Elsewhere log-probs take more memory than this, where it is free.
    Raises UserError for ``trainer.attention: model``, whose kernels and masks cannot be planned.
    """
    model = meta_model(config, dtype)
    plain = _bytes(model.parameters())
    forward = Forward(
        model,
        temperature=1.0,
        attention=settings.attention,
        logits_per_chunk=settings.logits_per_chunk or LOGITS_PER_CHUNK,
    )
    if forward.layout == "padded":
        raise UserError("the memory of the model's own attention cannot be planned (`trainer.attention`)")
    if settings.lora is not None:
        add_adapters(model, settings.lora, 0)
    if settings.activation_checkpointing:
        checkpoint_activations(model)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    halves = sum(p.numel() for p in model.parameters() if p.requires_grad and p.dtype != torch.float32)
    batch = _micro_batch(forward, settings.micro_batch_tokens, shape)
    if on_cpu:
        plan_for_cpu(batch.attention_mask)
    passes = _Passes(model, forward, spec, batch)
    activations, peak = passes.training()
    kept = 0 if settings.offload else trained
    sharded = ranks > 1
    whole = _bytes((*model.parameters(), *model.buffers())) + (2 * halves if sharded else 0)
    return TrainerMemory(
        weights=_share(whole, ranks),
        masters=0 if sharded or settings.offload else 4 * halves,
        gradients=_share(4 * kept, ranks),
        moments=_share(8 * kept, ranks),
        reference=_share(plain, ranks) if spec.needs_reference else 0,
        gathered=_gathered(model, dtype) if sharded else 0,
        activations=activations,
        temporary=peak - activations,
        forward_only=passes.forward_only(),
        tokens=shape.step_tokens * _TOKEN_BYTES,
        largest_weight=max(p.numel() for p in model.parameters()) * dtype.itemsize,
    )


class _Passes:
    """The passes of a micro-batch through a meta model, with their memory beside the weights."""

    def __init__(self, model: Any, forward: Forward, spec: Algorithm, batch: MicroBatch) -> None:
        self._model = model
        self._forward = forward
        self._spec = spec
        self._batch = batch
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_free_gradient)

    def training(self) -> tuple[int, int]:
        """Return what the forward pass keeps, and the peak of forward and backward pass, in bytes."""
        tracker = StorageTracker((*self._model.parameters(), *self._model.buffers()))
        kept = 0
        with tracker:
            for scores in self._forward.scores(self._batch, whole=self._spec.sees_whole_replies):
                loss = scores.log_probs.sum()
                if self._spec.entropy_coef > 0:
                    loss = loss + scores.entropies.sum()
                loss.backward()
                # The logits of the chunk are free again.
                kept = kept or tracker.current
        return kept, tracker.peak

    def forward_only(self) -> int:
        """Return the peak of a pass without gradients, in bytes."""
        with StorageTracker((*self._model.parameters(), *self._model.buffers())) as tracker:
            self._forward.log_probs([self._batch], len(self._batch.targets))
        return tracker.peak


def _free_gradient(parameter: Tensor) -> None:
    # As the optimizer does, once it has added it to its sum.
    parameter.grad = None


def _micro_batch(forward: Forward, limit: int, shape: StepShape) -> MicroBatch:
    """Return the largest micro-batch of a step, with as many targets as two chunks of logits need."""
    [batch] = forward.pack(largest_groups(limit, shape), max(limit, shape.prompt_tokens + shape.reply_tokens))
    few = 2 * LOGITS_PER_CHUNK // 1
    return replace(batch, targets=batch.targets[:few], tokens=batch.tokens[:few])


def largest_groups(limit: int, shape: StepShape) -> list[PromptReplies]:
    """Return groups that fill a micro-batch of ``limit`` tokens, or a single longer reply."""
    prompt, longest = shape.prompt_tokens, shape.reply_tokens - 1
    groups = min(shape.groups, -(-limit // (prompt + shape.replies * longest)))
    replies = shape.replies
    if groups == 1:
        replies = min(replies, max(1, -(-(limit - prompt) // longest)))
    length = longest if groups * replies == 1 else (limit - groups * prompt) // (groups * replies)
    return [PromptReplies([0] * prompt, [[0] * (min(length, longest) + 1)] * replies)] * groups


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def _share(amount: int, ranks: int) -> int:
    return -(-amount // ranks)


def _gathered(model: Any, dtype: torch.dtype) -> int:
    return 0
