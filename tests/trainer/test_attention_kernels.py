"""The kernels of packed attention for devices, against the CPU's and against a mask of the whole row.

Flash attention is written out (``reference_flash.py``); all else is what runs on a GPU. What it launches and
moves there is counted on the meta device.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.trainer import reference_flash
from tests.trainer.tiny_models import VOCABULARY, tiny_llama
from whetstone.trainer import attention_kernels
from whetstone.trainer.attention_blocks import block_attention
from whetstone.trainer.attention_kernels import (
    CANDIDATES,
    Kernel,
    KernelCandidate,
    Layer,
    packed_attention,
    select,
)
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.segments import AttentionPlan, Segment, run_table
from whetstone.trainer.varlen_attention import varlen_attention

KERNELS: dict[str, Kernel] = {
    "torch": varlen_attention,
    "flex": attention_kernels.flex_packed_attention,
}


@pytest.fixture(autouse=True)
def kernels_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    # flex_attention has gradients on a CPU, unless it is compiled, but refuses to compute them.
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(
        attention_kernels.flex,
        "compile_friendly_flex_attention",
        lambda *args, training, **options: cast(Any, torch_flex).flex_attention(*args, **options),
    )
    select.cache_clear()
    with reference_flash.torch_kernels():
        yield
    select.cache_clear()


groups = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(1, 9), max_size=4)), min_size=1, max_size=4
)


def runs_of(shape: list[tuple[int, list[int]]]) -> list[Segment]:
    """A prompt and its replies, one after the other."""
    runs: list[Segment] = []
    place = 0
    for prompt, replies in shape:
        start = place
        runs.append(Segment(start, prompt))
        place += prompt
        for length in replies:
            runs.append(Segment(place, length, start, prompt))
            place += length
    return runs


def masked(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, plan: AttentionPlan) -> Tensor:
    """Attention with a mask of the whole row."""
    tokens = query.shape[1]
    seen = torch.zeros(tokens, tokens, dtype=torch.bool)
    for run in plan.runs:
        for i in range(run.length):
            past = [*range(run.prefix, run.prefix + run.prefix_length), *range(run.start, run.start + i + 1)]
            seen[run.start + i, past[-(plan.window or tokens) :]] = True
    share = query.shape[0] // key.shape[0]
    scores = query @ key.repeat_interleave(share, 0).transpose(1, 2) * plan.scale
    if plan.cap:
        scores = plan.cap * torch.tanh(scores / plan.cap)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, tokens, 1)], -1)
    return (scores.softmax(-1)[..., :tokens] @ value.repeat_interleave(share, 0)).transpose(0, 1)


def layer(
    runs: list[Segment], dtype: torch.dtype, heads: tuple[int, int], width: tuple[int, int], sinks: bool
):
    tokens = runs[-1].start + runs[-1].length
    shapes = [(heads[0], tokens, width[0]), (heads[1], tokens, width[0]), (heads[1], tokens, width[1])]
    inputs = [torch.randn(shape, dtype=dtype) for shape in [*shapes, *([(heads[0],)] if sinks else [])]]
    return [tensor.requires_grad_() for tensor in inputs]


def computed(kernel: Kernel, inputs: list[Tensor], plan: AttentionPlan) -> list[Tensor]:
    """The attention of a row, and its gradients."""
    sinks = inputs[3] if len(inputs) > 3 else None
    out = kernel(inputs[0], inputs[1], inputs[2], sinks, plan)
    slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [out, *torch.autograd.grad(out, inputs, slope.to(out.dtype))]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", KERNELS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups,
    st.sampled_from([None, 1, 2, 5, 12, 40]),
    st.booleans(),
    st.sampled_from([(4, 4), (4, 2), (3, 1)]),
    st.sampled_from([(16, 16), (12, 12), (16, 8)]),
    st.sampled_from([0.0, 1.5]),
    st.sampled_from([torch.float64, torch.float32]),
)
def test_every_kernel_gives_the_values_and_gradients_of_a_mask(
    name: str,
    shape: list[tuple[int, list[int]]],
    window: int | None,
    sinks: bool,
    heads: tuple[int, int],
    width: tuple[int, int],
    cap: float,
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    cap = 0.0 if name == "torch" else cap
    runs = runs_of(shape)
    plan = AttentionPlan(run_table(runs), window, 0.3, cap)
    inputs = layer(runs, dtype, heads, width, sinks)
    found = computed(KERNELS[name], inputs, plan)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for other in (masked, block_attention):
        for one, two in zip(found, computed(other, inputs, plan), strict=True):
            assert torch.allclose(one, two, atol=tolerance, rtol=tolerance)


def test_windows_over_long_prompts_are_computed_in_parts_of_bounded_memory() -> None:
    runs = [Segment(0, 60), *(Segment(60 + 2 * i, 2, 0, 60) for i in range(30))]
    plan = AttentionPlan(run_table(runs), 50, 0.3, 0.0)
    inputs = layer(runs, torch.float64, (2, 1), (8, 8), sinks=False)
    with Traffic() as traffic:
        found = computed(KERNELS["torch"], inputs, plan)
    assert traffic.calls["torch_attn._varlen_attn.default"] == 4
    for one, two in zip(found, computed(masked, inputs, plan), strict=True):
        assert torch.allclose(one, two, atol=1e-10)


def test_a_model_has_the_log_probs_and_gradients_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts with several replies, of which parts were given and not written."""
    data = [
        PromptReplies([3, 4, 5, 6, 7], [[8, 9, 10] * 3, [11], [12, 13, 14, 15]]),
        PromptReplies([5], [[6, 7, 8, 9, 10, 11]]),
        PromptReplies([20, 21], [[22, 23, 24], [25, 26]]),
    ]
    written = torch.rand(25, generator=torch.Generator().manual_seed(0)) < 0.7

    def trained() -> list[Tensor]:
        forward = Forward(tiny_llama(vocab_size=VOCABULARY), temperature=0.7)
        found: list[Tensor] = []
        for micro_batch in forward.pack(data, 100):
            for scores in forward.scores(micro_batch.only_predicting(written)):
                found.append(scores.log_probs.detach())
                (scores.log_probs * (1 + scores.places)).sum().backward()
        return found + [p.grad for p in forward.model.parameters() if p.grad is not None]

    expected = trained()
    with Traffic() as traffic:
        monkeypatch.setattr(
            "whetstone.trainer.attention_kernels.attention_kernel", lambda *_: KERNELS["torch"]
        )
        found = trained()
    assert traffic.calls["torch_attn._varlen_attn_backward.default"] == 2 * 2
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert (one - two).norm() <= 1e-5 * two.norm()


# Selection


def a_layer(**changes: Any) -> Layer:
    return Layer(torch.device("meta"), torch.bfloat16, 4, 2, 128, 0.0, windowed=True, sinks=True)._replace(
        **changes
    )


def test_the_cpu_has_its_own_kernel() -> None:
    query = torch.zeros(4, 3, 16)
    plan = AttentionPlan(run_table([Segment(0, 3)]), None, 0.3, 0.0)
    assert attention_kernels.attention_kernel(query, query, None, plan) is block_attention


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": torch.float32}, "not in torch.float32"),
        ({"cap": 30.0}, "not with bounded scores"),
        ({"width": 512}, "not for heads wider than 256"),
        ({"device": torch.device("xpu")}, "not for devices of kind xpu"),
    ],
)
def test_flash_attention_is_not_used_for_unsupported_layers(changes: dict[str, Any], reason: str) -> None:
    assert CANDIDATES[0].obstacle(a_layer()) is None
    assert CANDIDATES[0].obstacle(a_layer(**changes)) == reason


def on_the_cpu(name: str, kernel: Kernel) -> KernelCandidate:
    return KernelCandidate(name, kernel, lambda _: None)


def wrong_values(*row: Any) -> Tensor:
    return 1.2 * varlen_attention(*row)


def wrong_shape(*row: Any) -> Tensor:
    return varlen_attention(*row)[1:]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_computes_the_small_row_is_taken(
    name: str, windowed: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_kernels, "CANDIDATES", [on_the_cpu(name, KERNELS[name])])
    state = torch.get_rng_state()
    with torch.no_grad():
        assert select(a_layer(device=torch.device("cpu"), dtype=dtype, windowed=windowed)) is KERNELS[name]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_can_be_selected_while_activations_are_checkpointed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of a kernel saves tensors of its own, which checkpointing must not count as the layer's."""
    monkeypatch.setattr(attention_kernels, "CANDIDATES", [on_the_cpu(name, KERNELS[name])])
    layer = a_layer(device=torch.device("cpu"), dtype=torch.float32, windowed=False, sinks=False)
    plan = AttentionPlan(run_table([Segment(0, 5), Segment(5, 3, 0, 5)]), None, 0.3, 0.0)
    inputs = [torch.randn(heads, 8, 128).requires_grad_() for heads in (4, 2, 2)]

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kernel = select(layer)
        assert kernel is KERNELS[name]
        return kernel(query * 2, key, value, None, plan)

    expected = torch.autograd.grad(attention(*inputs).sum(), inputs)
    select.cache_clear()
    found = torch.autograd.grad(checkpoint(attention, *inputs, use_reentrant=False).sum(), inputs)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (wrong_values, "results are wrong by"),
        (wrong_shape, "RuntimeError"),
        (KERNELS["torch"], "bounded: results are wrong by"),
    ],
    ids=["wrong values", "another shape", "no bound of scores"],
)
def test_a_wrong_kernel_is_not_used_and_that_is_said(
    kernel: Kernel, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cap = 1.5 if reason.startswith("bounded") else 0.0
    monkeypatch.setattr(attention_kernels, "CANDIDATES", [on_the_cpu("mine", kernel)])
    with caplog.at_level(logging.WARNING):
        chosen = select(a_layer(device=torch.device("cpu"), dtype=torch.float32, windowed=False, cap=cap))
    assert chosen is block_attention
    assert "plain matrix products in blocks" in caplog.text
    assert f"mine: {'its ' if 'wrong' in reason else ''}{reason.rpartition(': ')[2]}" in caplog.text


# What is launched and moved


class Traffic(TorchDispatchMode):
    """Counts operations that compute something, and the bytes of their inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made_up = str(func).startswith(("aten.empty", "aten.detach"))
        if not (func.is_view or made_up):
            self.calls[str(func)] = self.calls.get(str(func), 0) + 1
            given, returned = (tree_leaves(value) for value in ((args, kwargs), result))
            tensors = [value for value in given if isinstance(value, Tensor)]
            read = {id(value) for value in tensors}
            # What an operation changes in place is read and written.
            tensors += [
                v for v in returned if isinstance(v, Tensor) and (id(v) not in read or "_." in str(func))
            ]
            self.bytes += sum(value.numel() * value.itemsize for value in tensors)
        return result


def meta_layer(runs: list[Segment]) -> tuple[Traffic, int, int]:
    """Forward and backward of a layer with the heads of a model of 1.5B parameters in bf16.

    Returns what was counted, and the bytes that flash attention moves for the same tokens: the forward pass
    reads queries, keys and values and writes the output; the backward pass reads these four and the gradient
    of the output, and writes three gradients; the logarithms, in fp32, are written once and read once. Twice:
    with each prompt once, and with a prompt for every reply, as it is without shared prefixes.
    """
    tokens, table = runs[-1].start + runs[-1].length, run_table(runs)
    for _ in range(2):  # what is made of the table is kept for the next layer
        leaves = [
            torch.empty(1, tokens, heads, 128, dtype=torch.bfloat16, device="meta", requires_grad=True)
            for heads in (12, 2, 2)
        ]
        with Traffic() as traffic:
            query, key, value = (leaf.transpose(1, 2) for leaf in leaves)
            out = packed_attention(None, query, key, value, table)[0]
            out.backward(torch.empty_like(out))
    bytes_per_token = 2 * 128 * (2 * 12 + 2 * 2 + 4 * 12 + 4 * 2) + 2 * 4 * 12
    repeated = sum(run.reach for run in runs if run.prefix_length) or tokens
    return traffic, tokens * bytes_per_token, repeated * bytes_per_token


def test_a_long_reply_takes_the_time_of_flash_attention() -> None:
    traffic, flash, _ = meta_layer([Segment(0, 1000 + 32768)])
    assert sum(traffic.calls.values()) <= 10
    assert flash <= traffic.bytes <= 1.2 * flash


def test_replies_with_shared_prompts_cost_at_most_three_times_flash_attention() -> None:
    traffic, flash, repeated = meta_layer(runs_of([(1000, [1000] * 8)] * 16))
    assert sum(traffic.calls.values()) <= 40
    assert traffic.calls["torch_attn._varlen_attn_backward.default"] == 2
    assert flash <= traffic.bytes <= 3 * flash
    assert traffic.bytes <= 2 * repeated
