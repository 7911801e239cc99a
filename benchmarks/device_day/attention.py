"""The kernels of packed attention against blocks of plain matrix products, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import BLOCKS, dtype_name, seconds_of, usable_kernels
from whetstone.trainer.attention_blocks import block_attention
from whetstone.trainer.attention_kernels import Kernel, KernelCandidate, Layer
from whetstone.trainer.segments import AttentionPlan, Segment, run_table

_NAMES = ("output", "queries", "keys", "values", "sinks")


class _Case(NamedTuple):
    """A kind of layer: heads, heads of keys, width of a head, window (0: none), bound of scores, sinks."""

    name: str
    heads: int
    shared_heads: int
    width: int
    window: int = 0
    cap: float = 0.0
    sinks: bool = False

    def layer(self, context: SectionContext, dtype: torch.dtype) -> Layer:
        return Layer(
            context.device,
            dtype,
            self.heads,
            self.shared_heads,
            self.width,
            self.cap,
            bool(self.window),
            self.sinks,
        )


_CASES = [
    _Case("1.5B", 12, 2, 128),
    _Case("135M", 9, 3, 64),
    _Case("window", 12, 2, 128, window=300),
    _Case("bounded scores", 12, 2, 128, cap=50.0),
    _Case("sinks", 12, 2, 128, sinks=True),
]


def compare_kernels(context: SectionContext) -> None:
    """Record the errors of each kernel on a row of prompts and replies, and its time on one sequence."""
    runs = _row(2, 40, 2) if context.small else _row(8, 512, 8)
    context.note(row=f"{runs[-1].start + runs[-1].length} tokens: prompts with several replies")
    # The rows of the rehearsal are shorter than the window.
    cases = [case._replace(window=case.window // 10) if context.small else case for case in _CASES]
    for case in cases[:2]:
        _compare(context, case, torch.bfloat16, runs)
    for length in [128] if context.small else [8192, 32_768]:
        _time(context, cases[0], length)
    for case in cases[2:]:
        _compare(context, case, torch.bfloat16, runs)
    _compare(context, cases[0], torch.float32, runs)


def _compare(context: SectionContext, case: _Case, dtype: torch.dtype, runs: list[Segment]) -> None:
    usable, reasons = usable_kernels(case.layer(context, dtype))
    which = {"layer": case.name, "dtype": dtype_name(dtype)}
    columns: dict[str, Any] = dict.fromkeys(_NAMES, "")
    for name, reason in reasons.items():
        context.record(**which, kernel=name, **columns | {"output": reason})
    inputs = _inputs(case, runs[-1].start + runs[-1].length, context.device, dtype)
    expected = _pass(block_attention, case, [tensor.detach().float() for tensor in inputs], runs)()
    for name, kernel in [*_named(usable), (BLOCKS, block_attention)]:
        with context.attempt(**which, kernel=name):
            found = _pass(kernel, case, inputs, runs)()
            errors = [float((a.float() - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
            context.record(**which, kernel=name, **columns | dict(zip(_NAMES, errors, strict=False)))


def _time(context: SectionContext, case: _Case, length: int) -> None:
    usable, _ = usable_kernels(case.layer(context, context.dtype))
    kernels = _named(usable)
    # Plain matrix products would take many seconds for the longest sequence.
    kernels += [(BLOCKS, block_attention)] if length <= 8192 else []
    inputs = _inputs(case, length, context.device, context.dtype)
    for name, kernel in kernels:
        with context.attempt(tokens=length, kernel=name):
            work = _pass(kernel, case, inputs, [Segment(0, length)])
            first = seconds_of(context.device, work)
            usual = seconds_of(context.device, work, rounds=1 if context.small else 5)
            # Two products of the forward pass and five of the backward pass, over half of all pairs.
            operations = 7 * case.heads * case.width * length**2
            context.record(
                tokens=length,
                kernel=name,
                **{"first, ms": 1e3 * first, "usual, ms": 1e3 * usual, "TFLOP/s": operations / usual / 1e12},
            )


def _named(candidates: list[KernelCandidate]) -> list[tuple[str, Kernel]]:
    return [(candidate.name, candidate.kernel) for candidate in candidates]


def _row(prompts: int, prompt: int, replies: int) -> list[Segment]:
    """Return the runs of prompts, each followed by its replies of various lengths."""
    runs: list[Segment] = []
    place = 0
    for number in range(prompts):
        start = place
        runs.append(Segment(start, prompt + number))
        place += prompt + number
        for reply in range(replies):
            length = 1 + (37 * (number + 1) * (reply + 1)) % prompt
            runs.append(Segment(place, length, start, prompt + number))
            place += length
    return runs


def _inputs(case: _Case, tokens: int, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    heads = (case.heads, case.shared_heads, case.shared_heads)
    shapes: list[tuple[int, ...]] = [(count, tokens, case.width) for count in heads]
    shapes += [(case.heads,)] if case.sinks else []
    return [torch.randn(shape, generator=draw).to(device, dtype).requires_grad_() for shape in shapes]


def _pass(
    kernel: Kernel, case: _Case, inputs: list[Tensor], runs: list[Segment]
) -> Callable[[], list[Tensor]]:
    """Return a function that computes the output and the gradients of all inputs, once for each call."""
    leaves = [tensor.requires_grad_() for tensor in inputs]
    plan = AttentionPlan(run_table(runs), case.window or None, case.width**-0.5, case.cap)
    tokens = leaves[0].shape[1]
    draw = torch.Generator().manual_seed(1)
    slope = torch.randn(tokens, case.heads, case.width, generator=draw).to(leaves[0])

    def work() -> list[Tensor]:
        query, key, value, *sinks = leaves
        out = kernel(query, key, value, sinks[0] if sinks else None, plan)
        return [out.detach(), *torch.autograd.grad(out, leaves, slope)]

    return work
