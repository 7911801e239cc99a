"""Predicts the memory of an engine from the configuration of its model.

What the embedded engine needs beside weights and cache is counted on torch's meta device. A server takes the
share of its device that its arguments name.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from whetstone.core.errors import UserError
from whetstone.engine.kv_cache import BatchCache, PromptCache, PromptKV, token_bytes
from whetstone.engine.meta_model import meta_model
from whetstone.engine.scheduler import PREFILL_TOKENS
from whetstone.engine.storage_tracker import StorageTracker

# Arguments of servers for their share of a device's memory, and what they take without one.
_SHARES = {"vllm": ("--gpu-memory-utilization", 0.9), "sglang": ("--mem-fraction-static", 0.85)}
_SPLITS = {
    "vllm": ("--tensor-parallel-size", "-tp"),
    "sglang": ("--tensor-parallel-size", "--tp-size", "--tp"),
}


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
    needs at once beside them."""

    weights: int
    cache: int
    temporary: int


def embedded_engine_memory(
    config: Any, dtype: torch.dtype, shape: RequestShape, *, max_batch: int, cache_bytes: int
) -> EngineMemory:
    """Return the memory of the embedded engine for a model of ``config`` (a transformers configuration).

    max_batch: the most replies at once. cache_bytes: the limit of the cache. Raises UserError if the cache
    cannot hold one reply.
    """
    model = meta_model(config, dtype)
    held = (*model.parameters(), *model.buffers())
    with StorageTracker(held):
        each = token_bytes(model)
    cells = cache_bytes // each
    cache = BatchCache(cells)
    reach = shape.prompt_tokens + shape.reply_tokens
    rows = min(max_batch, shape.requests * shape.replies, cache.max_rows(reach))
    if not rows:
        raise UserError(
            f"a prompt of {shape.prompt_tokens} tokens and a reply of {shape.reply_tokens} may take "
            f"{reach * each / 1e9:.3g} GB of keys and values, and the engine's cache has "
            f"{cache_bytes / 1e9:.3g}; raise `engine.options.cache_mb`, or lower the length of replies"
        )
    columns = cache.final_columns(rows, shape.prompt_tokens - 1, shape.reply_tokens)
    cached = rows * columns * each
    prompts = min(shape.requests, -(-rows // shape.replies)) * (shape.prompt_tokens - 1) * each
    reading = _reading(model, held, shape) + prompts - cached
    step = _step(model, held, rows, columns, truncated=shape.truncated)
    weights = sum(tensor.numel() * tensor.itemsize for tensor in held)
    return EngineMemory(weights, cached, max(prompts, reading, step))


@torch.no_grad()
def _reading(model: Any, held: Sequence[torch.Tensor], shape: RequestShape) -> int:
    """Return the peak of a forward pass over prompts, without their keys and values."""
    length = max(1, shape.prompt_tokens - 1)
    ids = torch.zeros(min(shape.requests, max(1, PREFILL_TOKENS // length)), length, dtype=torch.long)
    cache = PromptCache()
    with _FusedAttention(), StorageTracker(held) as tracker:
        model.base_model(input_ids=ids.to("meta"), past_key_values=cache, use_cache=True)
    return tracker.peak - cache.bytes


@torch.no_grad()
def _step(model: Any, held: Sequence[torch.Tensor], rows: int, columns: int, *, truncated: bool) -> int:
    """Return the peak of sampling a token for each row, without the cache."""
    read = PromptCache()
    ids = torch.zeros(1, 1, dtype=torch.long, device="meta")
    with StorageTracker(held):
        model.base_model(input_ids=ids, past_key_values=read, use_cache=True)
    cache = BatchCache(rows * columns)
    length = columns - 2
    keys, values = (
        {layer: tensor.expand(1, -1, length, -1)[0] for layer, tensor in kept.items()}
        for kept in (read.keys, read.values)
    )
    cache.reserve(rows, length, 1)
    cache.add(PromptKV(length, keys, values), rows)
    # A mask of four dimensions, since transformers reads the values of others.
    mask = torch.ones(rows, 1, 1, cache.width + 1, dtype=torch.bool, device="meta")
    ids = torch.zeros(rows, 1, dtype=torch.long, device="meta")
    with _FusedAttention(), StorageTracker((*held, *cache.tensors())) as tracker:
        logits = model(
            input_ids=ids, attention_mask=mask, position_ids=ids, past_key_values=cache, use_cache=True
        ).logits
    # The sampler keeps weights of all tokens in fp32, and copies those of rows whose tokens it leaves out.
    return tracker.peak + logits[:, -1].numel() * 4 * (2 if truncated else 1)


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
    device_bytes: int,
) -> EngineMemory:
    """Return the memory of a server of ``kind`` on a device with ``device_bytes``.

    arguments: those with which it is started. What its weights leave of its share is cache. Raises UserError
    if the cache cannot hold one reply.
    """
    name, usual = _SHARES[kind]
    share = _number(arguments, (name,), usual)
    devices = int(_number(arguments, _SPLITS[kind], 1))
    model = meta_model(config, dtype)
    held = (*model.parameters(), *model.buffers())
    with StorageTracker(held):
        reply = (shape.prompt_tokens + shape.reply_tokens) * token_bytes(model) // devices
    weights = sum(tensor.numel() * tensor.itemsize for tensor in held) // devices
    cache = int(share * device_bytes) - weights
    if cache < reply:
        raise UserError(
            f"engine `{kind}` gets {share:g} of {device_bytes / 1e9:.3g} GB (`{name}`), and needs "
            f"{weights / 1e9:.3g} for weights and {reply / 1e9:.3g} for a reply of {shape.reply_tokens} "
            f"tokens; raise `{name}` or `{_SPLITS[kind][0]}` in `engine.options.arguments`"
        )
    return EngineMemory(weights, cache, 0)


def _number(arguments: Sequence[str], names: Sequence[str], usual: float) -> float:
    words = [word for argument in arguments for word in argument.split("=", 1)]
    for name, value in itertools.pairwise(words):
        if name in names:
            try:
                return float(value)
            except ValueError:
                raise UserError(f"engine.options.arguments: `{name}` is {value!r}; give a number") from None
    return usual
