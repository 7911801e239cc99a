"""Predicts the device memory of a rank of the trainer from the configuration of its model.

Weights, gradients and moments follow from the shapes of the parameters. The memory of a micro-batch is
counted by running its forward and backward pass on torch's meta device, where tensors have shapes and no
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.errors import UserError
from whetstone.engine.meta_model import meta_model
from whetstone.engine.model_layers import are_uniform, blocks
from whetstone.engine.storage_tracker import StorageTracker
from whetstone.trainer.forward import Forward
from whetstone.trainer.log_probs import LOGITS_PER_CHUNK
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.memory import checkpoint_activations
from whetstone.trainer.packing import MicroBatch, PromptReplies
from whetstone.trainer.segments import plan_for_cpu
from whetstone.trainer.settings import TrainerSection

# Bytes that a step keeps on the device for each reply token: its weight, engine's log-prob, version and
# reply, whether it is written, its advantage, and the log-probs before the step and under the reference.
_TOKEN_BYTES = 4 + 4 + 8 + 8 + 1 + 4 + 4 + 4

# Bytes of an fp32 number.
_WIDE = 4

# The numbers of equal layers from which the memory of more follows.
_FEW_LAYERS = (4, 6)


class NoMemoryPlan(UserError):
    """The memory of a model cannot be planned."""


@dataclass(frozen=True)
class StepShape:
    """The largest step.

    prompt_tokens, reply_tokens: the longest. groups, replies: the groups of an update on one rank, and the
    replies of each. step_tokens: the reply tokens of a step on all ranks.
    """

    prompt_tokens: int
    reply_tokens: int
    groups: int
    replies: int
    step_tokens: int


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes on the device of one rank.

    weights: parameters and buffers; of several ranks the shards, which are the fp32 master weights. masters:
    other fp32 copies. gradients, moments: of the trained parameters. reference: the frozen model of a KL
    penalty. tokens: what belongs to the tokens of a step.
    gathered: what a pass over several ranks collects. activations: what the forward pass of the largest
    micro-batch keeps. temporary: the most in addition: logits of a chunk, the results in a layer, or
    gradients in transfer. scoring: the most that a pass without gradients needs in addition to the gathered
    weights. publishing: the largest weight that is gathered or merged for the engines.
    """

    weights: int
    masters: int
    gradients: int
    moments: int
    reference: int
    tokens: int
    gathered: int
    activations: int
    temporary: int
    scoring: int
    publishing: int


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
    """Return the memory of one of ``ranks`` that train a model of ``config``, a transformers configuration.

    on_cpu: whether the device is a CPU; otherwise it is one that flash attention supports, in bf16. Raises
    NoMemoryPlan for a model whose own attention would be used.
    """
    model = meta_model(config, dtype)
    whole = _bytes(model.parameters())
    counter = _Counter(config, dtype, spec, settings, shape, on_cpu)
    passes = counter.count(len(blocks(model)), uniform=are_uniform(model))
    if settings.lora is not None:
        add_adapters(model, settings.lora, 0)
    shards = _Shards(model, dtype, ranks)
    peak = shards.training_peak(passes)
    kept = 0 if settings.offload else shards.trained
    wide = sum(p.numel() for p in model.parameters() if p.requires_grad and p.dtype == torch.float32)
    return TrainerMemory(
        weights=shards.weights,
        masters=0 if ranks > 1 or settings.offload else _WIDE * (shards.trained - wide),
        gradients=shards.share(_WIDE * kept),
        moments=shards.share(2 * _WIDE * kept),
        reference=shards.share(whole) if spec.needs_reference else 0,
        tokens=shape.step_tokens * _TOKEN_BYTES,
        gathered=shards.gathered,
        activations=passes.kept,
        temporary=max(0, peak - passes.kept - shards.gathered),
        scoring=passes.scoring,
        publishing=shards.largest if ranks > 1 or settings.lora is not None else 0,
    )


@dataclass(frozen=True)
class _Passes:
    """Bytes in addition to the weights while a micro-batch is computed by one rank: what the forward pass
    keeps, the peak up to the gradients of the hidden states, that of the backward pass through the layers,
    and that of a pass without gradients."""

    kept: int
    head: int
    layers: int
    scoring: int


@dataclass(frozen=True)
class _Counter:
    """Counts the memory of the passes of the largest micro-batch through a model on the meta device."""

    config: Any
    dtype: torch.dtype
    spec: Algorithm
    settings: TrainerSection
    shape: StepShape
    on_cpu: bool

    def count(self, layers: int, *, uniform: bool) -> _Passes:
        """Return the memory of a model with ``layers`` layers.

        Equal layers add equal amounts, so a few of them are sufficient.
        """
        few, more = _FEW_LAYERS
        if not uniform or layers <= more:
            return self._count(None)
        first, second = self._count(few), self._count(more)
        return _Passes(
            *(
                low + (high - low) * (layers - few) // (more - few)
                for low, high in zip(astuple(first), astuple(second), strict=True)
            )
        )

    def _count(self, layers: int | None) -> _Passes:
        settings = self.settings
        model = meta_model(self.config, self.dtype, layers)
        forward = Forward(
            model,
            temperature=1.0,
            attention=settings.attention,
            logits_per_chunk=settings.logits_per_chunk or LOGITS_PER_CHUNK,
        )
        if forward.layout == "padded":
            raise NoMemoryPlan("there is no plan for a model's own attention (`trainer.attention: model`)")
        if settings.lora is not None:
            add_adapters(model, settings.lora, 0)
        if settings.activation_checkpointing:
            checkpoint_activations(model)
        vocabulary = int(model.config.get_text_config().vocab_size)
        batch = _largest_batch(forward, settings, self.shape, vocabulary)
        if self.on_cpu:
            plan_for_cpu(batch.attention_mask)
        return _count_passes(model, forward, self.spec, batch)


def _count_passes(model: Any, forward: Forward, spec: Algorithm, batch: MicroBatch) -> _Passes:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_free_gradient)
    held = (*model.parameters(), *model.buffers())
    kept = head = 0
    with StorageTracker(held) as tracker:
        for scores in forward.scores(batch, whole=spec.sees_whole_replies):
            loss = scores.log_probs.sum()
            if spec.entropy_coef > 0:
                loss = loss + scores.entropies.sum()
            loss.backward()
            # The logits of the chunk are free again.
            kept = kept or tracker.current
            head = max(head, tracker.reset_peak())
    layers = tracker.peak
    with StorageTracker(held) as tracker:
        forward.log_probs([batch], len(batch.targets))
    return _Passes(kept, head, layers, tracker.peak)


def _free_gradient(parameter: Tensor) -> None:
    # As the optimizer does, once it has added it to its sum.
    parameter.grad = None


class _Shards:
    """The parts of a model that FSDP2 gathers: its blocks, and the rest, which stays gathered in a pass.

    A single rank gathers nothing.
    """

    def __init__(self, model: Any, dtype: torch.dtype, ranks: int) -> None:
        self._ranks = ranks
        self._width = dtype.itemsize
        parameters = list(model.parameters())
        inside = [list(block.parameters()) for block in blocks(model)]
        of_blocks = {id(parameter) for block in inside for parameter in block}
        rest = [parameter for parameter in parameters if id(parameter) not in of_blocks]
        self.trained = _trained(parameters)
        self.largest = max(p.numel() for p in parameters) * self._width
        self._block = max((_count(block) for block in inside), default=0)
        self._trained_block = max((_trained(block) for block in inside), default=0)
        self._rest = _count(rest)
        self._trained_rest = _trained(rest)
        self._head = _trained(model.get_output_embeddings().parameters())
        frozen = _bytes(p for p in parameters if not p.requires_grad)
        buffers = _bytes(model.buffers())
        sharded = frozen + _WIDE * self.trained
        self.weights = (self.share(sharded) if ranks > 1 else _bytes(parameters)) + buffers

    def share(self, amount: int) -> int:
        """Return a rank's part."""
        return math.ceil(amount / self._ranks)

    @property
    def gathered(self) -> int:
        """The bytes of gathered weights in a pass: outside the blocks, of a block, and of the next one, which
        arrives in a buffer and is then copied."""
        return 0 if self._ranks == 1 else self._width * (self._rest + 3 * self._block)

    def training_peak(self, passes: _Passes) -> int:
        """Return the peak of training on a micro-batch.

        With several ranks, gradients of the head are summed in fp32 from the first chunk of logits on. Those
        of a block are in the compute dtype, and then in an fp32 buffer until the next block is finished.
        """
        if self._ranks == 1:
            return max(passes.head, passes.layers)
        width = self._width
        always = width * self._rest + _WIDE * self._head
        inside = passes.layers + 2 * width * self._block + _WIDE * self._trained_block
        between = passes.kept + 3 * width * self._block + _WIDE * self._trained_block
        # At the end: fp32 gradients outside the blocks, and the buffer that reduces them.
        last = width * self._rest + 2 * _WIDE * self._trained_rest
        return max(always + max(passes.head, inside, between), last)


def _largest_batch(
    forward: Forward, settings: TrainerSection, shape: StepShape, vocabulary: int
) -> MicroBatch:
    """Return the largest micro-batch of a step, with the targets of two chunks of logits."""
    limit = settings.micro_batch_tokens
    [batch] = forward.pack(largest_groups(limit, shape), max(limit, shape.prompt_tokens + shape.reply_tokens))
    few = 2 * max(1, (settings.logits_per_chunk or LOGITS_PER_CHUNK) // vocabulary)
    # More chunks take more time and the same memory. All states that predict a token are still computed.
    return replace(batch, targets=batch.targets[:few], tokens=batch.tokens[:few])


def largest_groups(limit: int, shape: StepShape) -> list[PromptReplies]:
    """Return groups that fill a micro-batch of ``limit`` tokens, or a single longer reply."""
    prompt, longest = shape.prompt_tokens, max(1, shape.reply_tokens - 1)
    whole = min(shape.groups, limit // (prompt + shape.replies * longest))
    groups = [PromptReplies([0] * prompt, [[0] * (longest + 1)] * shape.replies)] * whole
    room = limit - whole * (prompt + shape.replies * longest) - prompt
    # The rest of the limit is filled with a part of a group.
    if not groups or (room > 0 and whole < shape.groups):
        replies = max(1, min(shape.replies, math.ceil(room / longest)))
        length = longest if not groups and replies == 1 else max(1, room // replies)
        groups.append(PromptReplies([0] * prompt, [[0] * (length + 1)] * replies))
    return groups


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def _count(parameters: Sequence[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _trained(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
