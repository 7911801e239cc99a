"""Selects the kernel of packed attention for a device, a dtype and a layer.

On the CPU it is ``attention_blocks.py``. On other devices it is the first of these that can compute the layer
and passes a test on a small row, in values and gradients: torch's variable-length flash attention,
flex_attention, and plain matrix products in blocks.

``packed_attention`` is exact attention over flat rows of many sequences without a mask of the row. A token
attends to its own run up to itself, and to a prefix (``segments.py``). Attention over a union follows from
attention over its parts: with the logarithm of each part's sum of exponentials, the parts are weighted and
added. The gradients of a part are those of ordinary attention, given the output and the logarithm of the
whole (Liu et al., Ring Attention, arXiv 2310.01889, use both across devices; Juravsky et al., Hydragen, arXiv
2402.05099, for a shared prefix). So each part uses a kernel for ordinary attention, and memory grows linearly
with tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface
from transformers.integrations import flex_attention as flex

from whetstone.trainer.attention_blocks import block_attention, invariant_attention
from whetstone.trainer.segments import AttentionPlan, Segment, run_table
from whetstone.trainer.varlen_attention import varlen_attention

log = logging.getLogger(__name__)

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, AttentionPlan], Tensor]
"""Attention of a row; see :func:`whetstone.trainer.attention_blocks.block_attention`."""

# The widest head of flash attention.
_WIDEST = 256

# The largest relative error of the test: more than the rounding of bf16 and TF32, less than one wrong token.
_TOLERANCE = 0.02

# More than one block of a kernel (128 tokens), and prompts with several replies.
_TESTED_RUNS = [
    *(Segment(0, 5), Segment(5, 3, 0, 5), Segment(8, 1, 0, 5)),
    *(Segment(9, 150), Segment(159, 40, 9, 150), Segment(199, 7, 9, 150)),
]
_TESTED_WINDOW = 60


class Layer(NamedTuple):
    """What a kernel must be able to compute; ``cap``: the bound of the scores, 0 for none."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    shared_heads: int
    width: int
    cap: float
    windowed: bool
    sinks: bool


class KernelCandidate(NamedTuple):
    """A kernel, and the reason why it cannot compute a layer, or None."""

    name: str
    kernel: Kernel
    obstacle: Callable[[Layer], str | None]


def attention_kernel(query: Tensor, key: Tensor, sinks: Tensor | None, plan: AttentionPlan) -> Kernel:
    """Return the kernel for a layer's tensors: [heads, tokens, width] and [shared heads, tokens, width]."""
    if plan.computes_on_cpu(query):
        return block_attention
    heads = (query.shape[0], key.shape[0], query.shape[2])
    return select(
        Layer(query.device, query.dtype, *heads, plan.cap, plan.window is not None, sinks is not None)
    )


@cache
def select(layer: Layer) -> Kernel:
    """Return the first candidate that can compute ``layer``, and log which."""
    reasons: list[str] = []
    for name, kernel, obstacle in CANDIDATES:
        reason = obstacle(layer) or _failure(kernel, layer)
        if reason is None:
            log.info("packed attention on %s: %s", layer.device, name)
            return kernel
        reasons.append(f"{name}: {reason}")
    if layer.device.type != "meta":
        _warn_of_blocks(layer, reasons)
    return block_attention


def _warn_of_blocks(layer: Layer, reasons: Sequence[str]) -> None:
    log.warning(
        "packed attention on %s is computed by plain matrix products in blocks, which is many times slower "
        "than a kernel. %s. `trainer.attention: model` uses the attention of transformers instead",
        layer.device,
        "; ".join(reasons),
    )


def flex_packed_attention(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, plan: AttentionPlan
) -> Tensor:
    """Return the attention of a row by one call of flex_attention, with gradients.

    Raises RuntimeError if it cannot be compiled for the device.
    """
    mask = plan.cached(("flex", query.device), lambda: _block_mask(plan, query))

    def bounded(score: Tensor, *_: Tensor) -> Tensor:
        return plan.cap * torch.tanh(score / plan.cap)

    shared = key.shape[0]
    if query.shape[0].bit_count() > 1 and query.shape[0] != shared:
        # The kernel needs a power of two of query heads to share keys.
        key, value = (t.repeat_interleave(query.shape[0] // shared, 0) for t in (key, value))
    out, extra = cast(Any, flex).compile_friendly_flex_attention(
        query[None],
        key[None],
        value[None],
        training=True,
        score_mod=bounded if plan.cap else None,
        block_mask=mask,
        scale=plan.scale,
        enable_gqa=query.shape[0] != key.shape[0],
        **flex.get_flex_attention_lse_kwargs(True),
    )
    if sinks is not None:
        logsum = cast(Tensor, getattr(extra, "lse", extra))
        # A sink is a key with value zero that every token attends to.
        out = out * torch.sigmoid(logsum - sinks.to(logsum.dtype)[:, None])[..., None].to(out.dtype)
    return out[0].transpose(0, 1)


def _block_mask(plan: AttentionPlan, query: Tensor) -> BlockMask:
    tokens, window = query.shape[1], plan.window
    fields = torch.tensor([run for run in plan.runs for _ in range(run.length)]).to(query.device)
    start, _, prefix, prefix_length = fields.unbind(1)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        own = (key >= start[query]) & (key <= query)
        before = key - prefix[query]
        earlier = (before >= 0) & (before < prefix_length[query])
        if window is None:
            return own | earlier
        position = query - start[query] + prefix_length[query]
        return (own & (query - key < window)) | (earlier & (position - before < window))

    # Otherwise a mask of all pairs of tokens would be computed.
    compiled = query.device.type != "cpu"
    return create_block_mask(sees, None, None, tokens, tokens, query.device, _compile=compiled)


def _failure(kernel: Kernel, layer: Layer) -> str | None:
    """Return what is wrong with a kernel's values and gradients on a small row, or None."""
    if layer.device.type == "meta":
        return None
    tokens = _TESTED_RUNS[-1].start + _TESTED_RUNS[-1].length
    plan = AttentionPlan(
        run_table(_TESTED_RUNS), _TESTED_WINDOW if layer.windowed else None, layer.width**-0.5, layer.cap
    )
    # torch's own random state must not change.
    random = torch.Generator().manual_seed(0)
    shapes = [(heads, tokens, layer.width) for heads in (layer.heads, layer.shared_heads, layer.shared_heads)]
    shapes += [(layer.heads,)] if layer.sinks else []
    inputs = [
        torch.randn(shape, generator=random).to(layer.device, layer.dtype).requires_grad_()
        for shape in shapes
    ]
    sinks = inputs[3] if layer.sinks else None
    try:
        # Activation checkpointing counts the tensors that a layer saves, without those of this test.
        with torch.enable_grad(), saved_tensors_hooks(_same, _same):
            row = (inputs[0], inputs[1], inputs[2], sinks, plan)
            found, expected = kernel(*row), block_attention(*row)
            slope = torch.randn(found.shape, generator=random).to(found)
            pairs = zip(*(torch.autograd.grad(o, inputs, slope) for o in (found, expected)), strict=True)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    both = ((found.detach(), expected.detach()), *pairs)
    errors = [float((a - b).float().norm() / b.float().norm()) for a, b in both]
    if all(error < _TOLERANCE for error in errors):
        return None
    return f"its results are wrong by {max(errors):.2g} on a small row"


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _no_flash(layer: Layer) -> str | None:
    if layer.device.type not in ("cuda", "meta"):
        return f"not for devices of kind {layer.device.type}"
    if layer.dtype not in (torch.bfloat16, torch.float16):
        return f"not in {layer.dtype}"
    if layer.width > _WIDEST:
        return f"not for heads wider than {_WIDEST}"
    if layer.cap:
        return "not with bounded scores"
    old = layer.device.type == "cuda" and torch.cuda.get_device_capability(layer.device) < (8, 0)
    return "needs compute capability 8.0" if old and torch.version.hip is None else None


def _no_flex(layer: Layer) -> str | None:
    if layer.device.type not in ("cuda", "xpu"):
        return f"not for devices of kind {layer.device.type}"
    return "needs triton" if find_spec("triton") is None else None


CANDIDATES = [
    KernelCandidate("torch's varlen_attn", varlen_attention, _no_flash),
    KernelCandidate("flex_attention", flex_packed_attention, _no_flex),
]


# The names of :func:`packed_attention` and :func:`invariant_packed_attention` in transformers.
PACKED = "whetstone_packed"
INVARIANT_PACKED = "whetstone_invariant_packed"


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    kernel: Kernel | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface for one flat row.

    query: [1, heads, tokens, width], key and value: [1, shared heads, tokens, width], value possibly with
    another width; attention_mask: a table of runs (:func:`whetstone.trainer.segments.run_table`); kernel: by
    default that of the device. Returns [1, tokens, heads, width of value]. Dropout is not applied, because a
    trained policy has none.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    plan = AttentionPlan(attention_mask, sliding_window, scale, softcap or 0.0)
    # The gradient of an index would be a copy.
    row = (query.squeeze(0), key.squeeze(0), value.squeeze(0))
    kernel = kernel or attention_kernel(*row[:2], s_aux, plan)
    return kernel(*row, s_aux, plan)[None], None


def invariant_packed_attention(*inputs: Any, **settings: Any) -> tuple[Tensor, None]:
    """:func:`packed_attention` with the numbers of ``engine/invariance.py``, for layers without sinks and
    score caps."""
    return packed_attention(*inputs, **settings, kernel=invariant_attention)


# The pieces of a row are determined in Python. A compiled layer calls it between its own parts.
AttentionInterface.register(PACKED, cast(Any, torch.compiler.disable(packed_attention)))
AttentionInterface.register(INVARIANT_PACKED, cast(Any, torch.compiler.disable(invariant_packed_attention)))
