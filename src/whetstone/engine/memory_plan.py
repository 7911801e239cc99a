"""Predicts the memory of an engine from the configuration of its model.

What the embedded engine needs in addition to weights and cache is counted on torch's meta device. A server
takes the share of its device that its arguments name.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from whetstone.core.errors import UserError
from whetstone.engine.kv_cache import BatchCache, PromptCache, PromptKV
from whetstone.engine.meta_model import meta_model
from whetstone.engine.model_layers import are_uniform, blocks
from whetstone.engine.scheduler import PREFILL_TOKENS
from whetstone.engine.storage_tracker import StorageTracker

# The equal layers of which the memory of generation is counted.
_FEW_LAYERS = 2

# The argument of a server for its share of a device's memory, and what it takes without it.
_SHARES = {"vllm": ("--gpu-memory-utilization", 0.9), "sglang": ("--mem-fraction-static", 0.85)}


@dataclass(frozen=True)
class RequestShape:
    """Requests at once: their number, the replies of each, and the longest prompt and reply in tokens.

    truncated: whether top-p or top-k leaves tokens out.
    """

    requests: int
    replies: int
    prompt_tokens: int
    reply_tokens: int
    truncated: bool = False


@dataclass(frozen=True)
class EngineMemory:
    """Bytes of the weights, of the cache of running replies, and the most that reading prompts or a step
    needs at once in addition."""

    weights: int
    cache: int
    temporary: int


def embedded_engine_memory(
    config: Any, dtype: torch.dtype, shapes: Sequence[RequestShape], *, max_batch: int, cache_bytes: int
) -> EngineMemory:
    """Return the memory of the embedded engine for a model of ``config``, a transformers configuration.

    shapes: of which the largest counts. max_batch: the most replies at once. cache_bytes: the limit of the
    cache. Raises UserError if the cache cannot hold one reply.
    """
    model = _Model(config, dtype)
    cells = cache_bytes // model.token_bytes
    found: list[EngineMemory] = []
    for shape in shapes:
        cache = BatchCache(cells)
        reach = shape.prompt_tokens + shape.reply_tokens
        rows = min(max_batch, shape.requests * shape.replies, cache.max_rows(reach))
        if not rows:
            raise UserError(
                f"a prompt of {shape.prompt_tokens} tokens and a reply of {shape.reply_tokens} may take "
                f"{reach * model.token_bytes / 1e9:.3g} GB of keys and values, and the engine's cache has "
                f"{cache_bytes / 1e9:.3g}; raise `engine.options.cache_mb`, or lower the length of replies"
            )
        columns = cache.final_columns(rows, shape.prompt_tokens - 1, shape.reply_tokens)
        cached = rows * columns * model.token_bytes
        prompts = min(shape.requests, -(-rows // shape.replies)) * (shape.prompt_tokens - 1)
        read = prompts * model.token_bytes
        temporary = max(read, model.reading(shape) + read - cached, model.step(rows, columns, shape))
        found.append(EngineMemory(model.weights, cached, temporary))
    return max(found, key=lambda memory: memory.cache + memory.temporary)


class _Model:
    """A model on the meta device that generates. Of equal layers it has a few, since a pass without gradients
    keeps nothing but keys and values."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        model = meta_model(config, dtype)
        self.weights = sum(
            tensor.numel() * tensor.itemsize for tensor in (*model.parameters(), *model.buffers())
        )
        layers = len(blocks(model))
        few = min(layers, _FEW_LAYERS) if are_uniform(model) else layers
        self._model = meta_model(config, dtype, few) if few < layers else model
        self._held = (*self._model.parameters(), *self._model.buffers())
        self._read = PromptCache()
        self._run(torch.zeros(1, 1, dtype=torch.long), self._read)
        self.token_bytes = self._read.bytes * layers // few

    def reading(self, shape: RequestShape) -> int:
        """Return the peak of a forward pass over prompts, without their keys and values, in bytes."""
        length = max(1, shape.prompt_tokens - 1)
        cache = PromptCache()
        prompts = min(shape.requests, max(1, PREFILL_TOKENS // length))
        return self._run(torch.zeros(prompts, length, dtype=torch.long), cache) - cache.bytes

    def _run(self, ids: torch.Tensor, cache: PromptCache) -> int:
        with torch.no_grad(), _FusedAttention(), StorageTracker(self._held) as tracker:
            self._model.base_model(input_ids=ids.to("meta"), past_key_values=cache, use_cache=True)
        return tracker.peak

    def step(self, rows: int, columns: int, shape: RequestShape) -> int:
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
        with torch.no_grad(), _FusedAttention(), StorageTracker(held) as tracker:
            logits = self._model(
                input_ids=ids, attention_mask=mask, position_ids=ids, past_key_values=cache, use_cache=True
            ).logits
        # The sampler keeps weights of all tokens in fp32, and copies those of rows whose tokens it leaves
        # out.
        return tracker.peak + logits[:, -1].numel() * 4 * (2 if shape.truncated else 1)


class _FusedAttention(TorchFunctionMode):
    """Gives attention the result of a fused kernel. On meta tensors torch would write out all scores."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, _, value = args[:3]
        return query.new_empty(*query.shape[:-1], value.shape[-1])


def server_memory(
    config: Any,
    dtype: torch.dtype,
    shape: RequestShape,
    *,
    kind: str,
    arguments: Sequence[str],
    devices: int,
    device_bytes: int,
) -> EngineMemory:
    """Return the memory of a server of ``kind`` on each of its ``devices``, which have ``device_bytes``.

    arguments: those with which it is started. What its weights leave of its share is cache. Raises UserError
    if the cache cannot hold one reply.
    """
    name, usual = _SHARES[kind]
    share = _number(arguments, name, usual)
    model = _Model(config, dtype)
    weights = model.weights // devices
    reply = (shape.prompt_tokens + shape.reply_tokens) * model.token_bytes // devices
    cache = int(share * device_bytes) - weights
    if cache < reply:
        raise UserError(
            f"engine `{kind}` gets {share:g} of {device_bytes / 1e9:.3g} GB on a device, and needs "
            f"{weights / 1e9:.3g} for weights and {reply / 1e9:.3g} for a reply of {shape.reply_tokens} "
            f"tokens; raise `{name}` in `engine.options.arguments`, or `engine.options.tensor_parallel`"
        )
    return EngineMemory(weights, cache, 0)


def _number(arguments: Sequence[str], name: str, usual: float) -> float:
    words = [word for argument in arguments for word in argument.split("=", 1)]
    for word, value in itertools.pairwise(words):
        if word == name:
            try:
                return float(value)
            except ValueError:
                raise UserError(f"engine.options.arguments: `{name}` is {value!r}; give a number") from None
    return usual
