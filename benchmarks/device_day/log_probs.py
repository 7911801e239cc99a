"""Log-probs from hidden states by chunks of logits, against float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.device_day.context import SectionContext, free_memory
from benchmarks.device_day.workload import large_shape, random_model, seconds_of
from whetstone.engine.memory import peak_bytes
from whetstone.trainer.log_probs import LogProbHead

_GIB = 2**30


def compare_operations(context: SectionContext) -> None:
    """Record error, time and memory of the log-probs of one row and their gradients, by operation."""
    shape = large_shape(context) | {"num_hidden_layers": 1}
    tokens = 256 if context.small else 8192
    context.note(tokens=tokens, vocabulary=shape["vocab_size"])
    # Both models have the same weights, up to the rounding to the compute type.
    exact = LogProbHead(_model(context, shape, torch.float32), temperature=1.0)
    expected = _values(exact, *_inputs(exact, tokens))
    del exact
    free_memory()
    head = LogProbHead(_model(context, shape, context.dtype), temperature=1.0)
    _record(context, "chunks of logits", head, tokens, expected)


def _model(context: SectionContext, shape: dict[str, Any], dtype: torch.dtype) -> Any:
    return random_model(shape, context.device, torch.float32).to(dtype)


def _record(
    context: SectionContext, name: str, head: LogProbHead, tokens: int, expected: list[Tensor]
) -> None:
    with context.attempt(operation=name):
        inputs = _inputs(head, tokens)
        found = _values(head, *inputs)
        pairs = zip(("log-probs", "hidden states", "weights"), found, expected, strict=True)
        errors = {kind: float((a.float() - b).norm() / b.norm()) for kind, a, b in pairs}
        del found
        free_memory()
        if context.device.type != "cpu":
            torch.accelerator.reset_peak_memory_stats()
        before = 0 if context.device.type == "cpu" else torch.accelerator.memory_allocated()
        seconds = seconds_of(context.device, lambda: _values(head, *inputs), rounds=3)
        context.record(
            operation=name,
            chunks=len(head.chunks(tokens)),
            **errors,
            **{"ms": 1e3 * seconds, "peak, GiB": (peak_bytes() - before) / _GIB},
        )


def _inputs(head: LogProbHead, tokens: int) -> tuple[Tensor, Tensor]:
    """Return hidden states and the tokens after them."""
    weight = head.weight
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, weight.shape[1], generator=draw).to(weight).requires_grad_()
    return hidden, torch.randint(weight.shape[0], (tokens,), generator=draw).to(weight.device)


def _values(head: LogProbHead, hidden: Tensor, targets: Tensor) -> list[Tensor]:
    """Return the log-probs, and the gradients of their mean for the hidden states and the head's weights."""
    inputs = (hidden, head.weight)
    for tensor in inputs:
        tensor.grad = None
    parts: list[Tensor] = []
    for chunk in head.chunks(len(targets)):
        values, _ = head.score(hidden[chunk], targets[chunk])
        (values.sum() / len(targets)).backward()
        parts.append(values.detach())
    return [torch.cat(parts), *(tensor.grad for tensor in inputs if tensor.grad is not None)]
