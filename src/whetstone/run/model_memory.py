"""The rows of a memory plan: what one model of a run takes in the trainer and in its engines.

Weights, gradients and moments follow from the shapes of the parameters. What the trainer's passes and the
embedded engine's steps need in addition is counted on torch's meta device (``engine/meta_model.py``). A
server takes the share of its device that its arguments name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whetstone.core.errors import UserError
from whetstone.engine.kv_cache import BatchCache, PromptCache, PromptKV
from whetstone.engine.memory import cache_limit
from whetstone.engine.meta_model import FusedAttention, StorageTracker, meta_model
from whetstone.engine.scheduler import PREFILL_TOKENS
from whetstone.engine.settings import SERVERS, TorchOptions
from whetstone.evaluate.plan import SamplingPlan
from whetstone.run.auto import needs_embedded
from whetstone.run.recipe import Recipe
from whetstone.trainer.forward import Forward
from whetstone.trainer.log_probs import LOGITS_PER_CHUNK
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.memory import are_uniform, blocks, checkpoint_activations
from whetstone.trainer.packing import MicroBatch, PromptReplies
from whetstone.trainer.segments import plan_for_cpu

GENERATION, SCORING, TRAINING, UPDATE = "generation", "log-probs", "training", "update"
PHASES = (GENERATION, SCORING, TRAINING, UPDATE)
ENGINE_WEIGHTS, _ENGINE_CACHE = "engine: weights", "engine: cache and results"
KEYS = {
    "weights": "model.path, model.dtype, more ranks",
    "masters, gradients, moments": "trainer.offload, trainer.lora, more ranks",
    "reference model": "algorithm.kl_coef, trainer.offload, more ranks",
    "gathered weights": "model.path",
    "tokens of a step": "trainer.prompts_per_step, sampling.max_tokens",
    "activations": "trainer.activation_checkpointing, trainer.micro_batch_tokens",
    "logits, results of a layer": "trainer.micro_batch_tokens, trainer.logits_per_chunk",
    ENGINE_WEIGHTS: "engine.kind, engine.placement",
    _ENGINE_CACHE: "engine.options, sampling.max_tokens, environment.max_prompt_tokens",
}
"""The rows of a plan, and the recipe keys that change each."""
Rows = dict[str, dict[str, int]]
"""Bytes in each phase, by row."""

# The part of a device's memory that is planned. The rest is for what torch does not count (the context of the
# device, libraries, buffers of collectives) and for fragments between its blocks.
_USABLE = 0.95
# The numbers of equal layers from which the memory of more follows: of passes with gradients, and of the
# engine, whose passes keep nothing but keys and values.
_FEW_LAYERS, _ENGINE_LAYERS = (4, 6), 2
# The argument of a server for its share of a device's memory, and what it takes without it.
_SHARES = {"vllm": ("--gpu-memory-utilization", 0.9), "sglang": ("--mem-fraction-static", 0.85)}
# Bytes of an fp32 number.
_FP32 = 4
# Bytes that a step keeps on the device for each reply token: its weight, engine's log-prob, version and
# reply, whether it is written, its advantage, and the log-probs before the step and under the reference.
_TOKEN_BYTES = 4 + 4 + 8 + 8 + 1 + 4 + 4 + 4


class NoMemoryPlan(UserError):
    """The memory of a model cannot be planned."""


@dataclass(frozen=True)
class PlannedMachine:
    """The devices of a run: how many ranks a trainer in one process has, and the bytes of each device."""

    ranks: int
    device_bytes: int
    on_cpu: bool

    @property
    def usable(self) -> int:
        """The bytes of a device that a plan may use."""
        return int(_USABLE * self.device_bytes)


@dataclass(frozen=True)
class _Requests:
    """Requests at once: their number, the replies of each, and the longest prompt and reply in tokens.

    truncated: whether top-p or top-k leaves tokens out.
    """

    count: int
    replies: int
    prompt: int
    reply: int
    truncated: bool


class _Passes(NamedTuple):
    """Bytes in addition to the weights while a micro-batch is computed by one rank: what the forward pass
    keeps, the peak up to the gradients of the hidden states, that of the backward pass through the layers,
    and that of a pass without gradients."""

    kept: int
    head: int
    layers: int
    scoring: int


@dataclass(frozen=True)
class ModelMemory:
    """The memory of one model of a run.

    config: its transformers configuration. first: whether it is the run's first model, which is evaluated.
    """

    recipe: Recipe
    config: Any
    dtype: torch.dtype
    machine: PlannedMachine
    first: bool

    @property
    def evaluates(self) -> bool:
        """Whether this model is evaluated during the run."""
        evaluation, heldout = self.recipe.evaluation, self.recipe.data.heldout
        return self.first and bool(heldout is not None or evaluation.train_problems or evaluation.sets)

    def _prompt_tokens(self, wanted: int, reply_tokens: int) -> int:
        """Return the longest prompt that leaves room for a reply."""
        context = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        limits = [limit for limit in (context, self.recipe.engine.options.get("max_context")) if limit]
        return max(1, min([wanted, *(limit - reply_tokens for limit in limits)]))

    # The trainer

    def trainer_rows(self, phases: Sequence[str] = PHASES) -> Rows:
        """Return the rows of a rank of the trainer, which is on its device in ``phases``."""
        trainer, algorithm, ranks = self.recipe.trainer, self.recipe.algorithm, self.machine.ranks
        model = meta_model(self.config, self.dtype)
        whole = _bytes(model.parameters())
        passes = self._passes(len(blocks(model)), uniform=are_uniform(model))
        if trainer.lora is not None:
            add_adapters(model, trainer.lora, 0)
        parameters = list(model.parameters())
        trained = _trained(parameters)
        wide = _trained(p for p in parameters if p.dtype == torch.float32)
        # The shards of several ranks are the masters.
        optimizer = 0 if ranks > 1 else _FP32 * (trained - wide)
        # The summed gradients, and two moments.
        optimizer += math.ceil(_FP32 * trained / ranks) + math.ceil(2 * _FP32 * trained / ranks)
        reference = math.ceil(whole / ranks) if algorithm.needs_reference else 0
        held, gathered, peak = _rank_memory(model, ranks, self.dtype.itemsize, passes)
        tokens = trainer.prompts_per_step * trainer.samples_per_prompt * self.recipe.longest_sample
        largest = max(p.numel() for p in parameters) * self.dtype.itemsize
        temporary = {
            SCORING: passes.scoring,
            TRAINING: max(0, peak - passes.kept - gathered),
            # The largest weight is gathered or merged for the engines.
            UPDATE: largest if ranks > 1 or trainer.lora else 0,
        }
        at_work = (SCORING, TRAINING)
        # With offload, the reference of one process is on the device only while it is used.
        needed = (SCORING,) if trainer.offload and ranks == 1 else phases
        return {
            "weights": dict.fromkeys(phases, held),
            "masters, gradients, moments": dict.fromkeys(phases, 0 if trainer.offload else optimizer),
            "reference model": dict.fromkeys(needed, reference),
            "gathered weights": dict.fromkeys(at_work, gathered),
            "tokens of a step": dict.fromkeys(at_work, tokens * _TOKEN_BYTES),
            "activations": {TRAINING: passes.kept},
            "logits, results of a layer": temporary,
        }

    def _passes(self, layers: int, *, uniform: bool) -> _Passes:
        """Return the memory of the passes through ``layers`` layers. Equal ones add equal amounts."""
        few, more = _FEW_LAYERS
        if not uniform or layers <= more:
            return self._counted_passes(None)
        pairs = zip(self._counted_passes(few), self._counted_passes(more), strict=True)
        return _Passes(*(low + (high - low) * (layers - few) // (more - few) for low, high in pairs))

    def _counted_passes(self, layers: int | None) -> _Passes:
        settings, algorithm = self.recipe.trainer, self.recipe.algorithm
        model = meta_model(self.config, self.dtype, layers)
        logits = settings.logits_per_chunk or LOGITS_PER_CHUNK
        forward = Forward(model, temperature=1.0, attention=settings.attention, logits_per_chunk=logits)
        if forward.layout == "padded":
            raise NoMemoryPlan("there is no plan for a model's own attention (`trainer.attention: model`)")
        if settings.lora is not None:
            add_adapters(model, settings.lora, 0)
        if settings.activation_checkpointing:
            checkpoint_activations(model)
        # More chunks of logits take more time and the same memory. All states that predict a token are still
        # computed.
        batch = self._largest_batch(forward)
        few = 2 * max(1, logits // int(model.config.get_text_config().vocab_size))
        batch = replace(batch, targets=batch.targets[:few], tokens=batch.tokens[:few])
        if self.machine.on_cpu:
            plan_for_cpu(batch.attention_mask)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_free_gradient)
        held = (*model.parameters(), *model.buffers())
        kept = head = 0
        with StorageTracker(held) as tracker:
            for scores in forward.scores(batch, whole=algorithm.sees_whole_replies):
                loss = scores.log_probs.sum()
                if algorithm.entropy_coef > 0:
                    loss = loss + scores.entropies.sum()
                loss.backward()
                # The logits of the chunk are free again.
                kept = kept or tracker.current
                head = max(head, tracker.reset_peak())
        layers_peak = tracker.peak
        with StorageTracker(held) as tracker:
            forward.log_probs([batch], len(batch.targets))
        return _Passes(kept, head, layers_peak, tracker.peak)

    def _largest_batch(self, forward: Forward) -> MicroBatch:
        """Return a micro-batch of groups that fill its limit, or of a single longer reply."""
        trainer, reply = self.recipe.trainer, self.recipe.longest_sample
        limit, most = trainer.micro_batch_tokens, trainer.samples_per_prompt
        prompt = self._prompt_tokens(self.recipe.environment.max_prompt_tokens, reply)
        count = -(-trainer.prompts_per_step // trainer.minibatches // self.machine.ranks) or 1
        longest = max(1, reply - 1)
        whole = min(count, limit // (prompt + most * longest))
        groups = [PromptReplies([0] * prompt, [[0] * (longest + 1)] * most)] * whole
        room = limit - whole * (prompt + most * longest) - prompt
        # The rest of the limit is filled with a part of a group.
        if not groups or (room > 0 and whole < count):
            replies = max(1, min(most, math.ceil(room / longest)))
            length = longest if not groups and replies == 1 else max(1, room // replies)
            groups.append(PromptReplies([0] * prompt, [[0] * (length + 1)] * replies))
        [batch] = forward.pack(groups, max(limit, prompt + reply))
        return batch

    # The engine

    @property
    def _engine_kind(self) -> str:
        """The engine of the planned machine; ``auto`` takes vLLM on an accelerator if the run can use it."""
        kind = self.recipe.engine.kind
        if kind != "auto":
            return kind
        return "torch" if self.machine.on_cpu or needs_embedded(self.recipe) else "vllm"

    def local_engine_rows(self) -> Rows:
        """Return the rows of an engine that samples in turn with the trainer."""
        rows = self.engine_rows((GENERATION,), sampling=True, evaluation=self.evaluates)
        server = self._engine_kind in SERVERS
        if server and self.recipe.engine.placement == "shared":
            return rows
        # The weights of the embedded engine stay while the trainer works; so does all of a server that does
        # not sleep.
        return {
            name: dict.fromkeys(PHASES, its[GENERATION]) if server or name == ENGINE_WEIGHTS else its
            for name, its in rows.items()
        }

    def engine_rows(self, phases: Sequence[str], *, sampling: bool = False, evaluation: bool = False) -> Rows:
        """Return the rows of an engine that samples or evaluates in ``phases``."""
        shapes = list(self._sampled()) if sampling else []
        shapes += self._evaluated() if evaluation else []
        if self._engine_kind in SERVERS:
            weights, rest = self._server(max(shapes, key=lambda shape: shape.prompt + shape.reply))
        elif self._engine_kind == "torch":
            weights, rest = self._embedded(shapes)
        else:
            # Nothing is known of a user's own engine.
            return {}
        return {
            ENGINE_WEIGHTS: dict.fromkeys(phases, weights),
            _ENGINE_CACHE: dict.fromkeys(phases, rest),
        }

    def _sampled(self) -> Iterator[_Requests]:
        recipe, sampling = self.recipe, self.recipe.sampling
        trainer, reply = recipe.trainer, recipe.longest_sample
        count = -(-trainer.prompts_per_step // self.machine.ranks)
        if recipe.flow is not None:
            count = recipe.flow.room_for(trainer.prompts_per_step)
        prompt = self._prompt_tokens(recipe.environment.max_prompt_tokens, reply)
        yield _Requests(count, trainer.samples_per_prompt, prompt, reply, sampling.truncates)

    def _evaluated(self) -> Iterator[_Requests]:
        recipe, evaluation = self.recipe, self.recipe.evaluation
        plans: list[tuple[SamplingPlan, int]] = []
        if recipe.data.heldout is not None or evaluation.train_problems:
            own = evaluation.plan(recipe.sampling, recipe.seed)
            plans.append((own, recipe.environment.max_prompt_tokens))
        for each in evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
            plans.append((each.plan, each.settings.max_prompt_tokens))
        for plan, wanted in plans:
            prompt = self._prompt_tokens(wanted, plan.max_tokens)
            yield _Requests(TorchOptions().max_batch, plan.n, prompt, plan.max_tokens, plan.top_p < 1)

    def _server(self, most: _Requests) -> tuple[int, int]:
        """Return the bytes of a server's weights on each of its devices, and of the rest of its share, which
        is its cache. Raises UserError if that cannot hold one reply."""
        options, size, kind = self.recipe.engine.options, self.machine.device_bytes, self._engine_kind
        devices = int(options.get("tensor_parallel", 1))
        name, usual = _SHARES[kind]
        words = [word for each in options.get("arguments", ()) for word in str(each).split("=", 1)]
        given = next((value for word, value in itertools.pairwise(words) if word == name), usual)
        try:
            share = float(given)
        except ValueError:
            raise UserError(f"engine.options.arguments: `{name}` is {given!r}; give a number") from None
        model = _MetaEngine(self.config, self.dtype)
        weights = model.weights // devices
        reply = (most.prompt + most.reply) * model.token_bytes // devices
        cache = int(share * size) - weights
        if cache < reply:
            raise UserError(
                f"engine `{kind}` gets {share:g} of {size / 1e9:.3g} GB on a device, and needs "
                f"{weights / 1e9:.3g} for weights and {reply / 1e9:.3g} for a reply of {most.reply} "
                f"tokens; raise `{name}` in `engine.options.arguments`, or `engine.options.tensor_parallel`"
            )
        return weights, cache

    def _embedded(self, shapes: Sequence[_Requests]) -> tuple[int, int]:
        """Return the bytes of the embedded engine's weights, and the most of its cache with what reading
        prompts or a step needs. Raises UserError if the cache cannot hold one reply."""
        given = self.recipe.engine.options
        known = {key: value for key, value in given.items() if key in TorchOptions.model_fields}
        options = TorchOptions.model_validate(known)
        limit = cache_limit(options.cache_mb, self.machine.device_bytes)
        model, found = _MetaEngine(self.config, self.dtype), [0]
        cache = BatchCache(limit // model.token_bytes)
        for shape in shapes:
            reach = shape.prompt + shape.reply
            rows = min(options.max_batch, shape.count * shape.replies, cache.max_rows(reach))
            if not rows:
                raise UserError(
                    f"a prompt of {shape.prompt} tokens and a reply of {shape.reply} may take "
                    f"{reach * model.token_bytes / 1e9:.3g} GB of keys and values, and the engine's cache "
                    f"has {limit / 1e9:.3g}; raise `engine.options.cache_mb`, or lower the length of replies"
                )
            columns = cache.final_columns(rows, shape.prompt - 1, shape.reply)
            cached = rows * columns * model.token_bytes
            prompts = min(shape.count, -(-rows // shape.replies)) * (shape.prompt - 1)
            read = prompts * model.token_bytes
            step = model.step(rows, columns, truncated=shape.truncated)
            found.append(cached + max(read, model.reading(shape) + read - cached, step))
        return model.weights, max(found)


class _MetaEngine:
    """A model on the meta device that generates. Of equal layers it has a few."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        model = meta_model(config, dtype)
        self.weights = _bytes((*model.parameters(), *model.buffers()))
        layers = len(blocks(model))
        few = min(layers, _ENGINE_LAYERS) if are_uniform(model) else layers
        self._model = meta_model(config, dtype, few) if few < layers else model
        self._held = (*self._model.parameters(), *self._model.buffers())
        self._read = PromptCache()
        self._run(torch.zeros(1, 1, dtype=torch.long), self._read)
        self.token_bytes = self._read.bytes * layers // few

    def reading(self, shape: _Requests) -> int:
        """Return the peak of a forward pass over prompts, without their keys and values, in bytes."""
        length = max(1, shape.prompt - 1)
        cache = PromptCache()
        prompts = min(shape.count, max(1, PREFILL_TOKENS // length))
        return self._run(torch.zeros(prompts, length, dtype=torch.long), cache) - cache.bytes

    def _run(self, ids: Tensor, cache: PromptCache) -> int:
        with torch.no_grad(), FusedAttention(), StorageTracker(self._held) as tracker:
            self._model.base_model(input_ids=ids.to("meta"), past_key_values=cache, use_cache=True)
        return tracker.peak

    def step(self, rows: int, columns: int, *, truncated: bool) -> int:
        """Return the peak of sampling a token for each row, without the cache, in bytes."""
        cache = BatchCache(rows * columns)
        length = columns - 2
        keys, values = (
            {layer: tensor.expand(1, -1, length, -1)[0] for layer, tensor in kept.items()}
            for kept in (self._read.keys, self._read.values)
        )
        cache.reserve(rows, length, 1)
        cache.add(PromptKV(length, keys, values), rows)
        # A mask of four dimensions, since transformers reads the values of others.
        mask = torch.ones(rows, 1, 1, cache.width + 1, dtype=torch.bool, device="meta")
        ids = torch.zeros(rows, 1, dtype=torch.long, device="meta")
        held = (*self._held, *cache.tensors())
        with torch.no_grad(), FusedAttention(), StorageTracker(held) as tracker:
            logits = self._model(
                input_ids=ids, attention_mask=mask, position_ids=ids, past_key_values=cache, use_cache=True
            ).logits
        # The sampler keeps weights of all tokens in fp32, and copies those of rows whose tokens it leaves
        # out.
        return tracker.peak + logits[:, -1].numel() * _FP32 * (2 if truncated else 1)


def _rank_memory(model: Any, ranks: int, width: int, passes: _Passes) -> tuple[int, int, int]:
    """Return the bytes of a rank's weights, of what a pass gathers, and of the peak of training on a
    micro-batch. ``width``: the bytes of a weight in the compute dtype.

    FSDP2 gathers a block at a time, and the rest of the model for a whole pass. Gradients of the head are
    summed in fp32 from the first chunk of logits on. Those of a block are in the compute dtype, and then in
    an fp32 buffer until the next block is finished.
    """
    parameters, buffers = list(model.parameters()), _bytes(model.buffers())
    if ranks == 1:
        return _bytes(parameters) + buffers, 0, max(passes.head, passes.layers)
    inside = [list(block.parameters()) for block in blocks(model)]
    block = max((sum(p.numel() for p in its) for its in inside), default=0)
    trained_block = max(map(_trained, inside), default=0)
    of_blocks = {id(parameter) for its in inside for parameter in its}
    outside = [parameter for parameter in parameters if id(parameter) not in of_blocks]
    rest = width * sum(parameter.numel() for parameter in outside)
    frozen = _bytes(parameter for parameter in parameters if not parameter.requires_grad)
    shards = math.ceil((frozen + _FP32 * _trained(parameters)) / ranks)
    # A block is gathered, and so is the next one, which arrives in a buffer and is then copied.
    gathered = rest + 3 * width * block
    always = rest + _FP32 * _trained(model.get_output_embeddings().parameters())
    in_layer = passes.layers + 2 * width * block + _FP32 * trained_block
    between = passes.kept + 3 * width * block + _FP32 * trained_block
    # At the end: fp32 gradients outside the blocks, and the buffer that reduces them.
    last = rest + 2 * _FP32 * _trained(outside)
    return shards + buffers, gathered, max(always + max(passes.head, in_layer, between), last)


def _free_gradient(parameter: Tensor) -> None:
    # As the optimizer does, once it has added it to its sum.
    parameter.grad = None


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def _trained(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
