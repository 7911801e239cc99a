"""Log-probs without waiting for the device: chunks by free memory, and the metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.tiny_models import VOCABULARY, random_batch, tiny_llama
from whetstone.algorithm.algorithm import Losses, LossInputs
from whetstone.algorithm.named import algorithm_named
from whetstone.trainer.log_probs import LOGITS_PER_CHUNK, LogProbHead, logits_at_once
from whetstone.trainer.meter import StepMeter
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

GIGABYTE = 10**9


def with_free_memory(patch: pytest.MonkeyPatch, free: int, cached: int = 0) -> None:
    patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 * GIGABYTE))
    patch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GIGABYTE + cached)
    patch.setattr(torch.cuda, "memory_allocated", lambda device: 3 * GIGABYTE)


def test_chunks_use_the_free_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    with_free_memory(monkeypatch, 32 * GIGABYTE)
    assert 16 * logits_at_once(cuda) == 8 * GIGABYTE
    with_free_memory(monkeypatch, 16 * GIGABYTE, cached=16 * GIGABYTE)
    assert 16 * logits_at_once(cuda) == 8 * GIGABYTE
    with_free_memory(monkeypatch, 1000)
    assert logits_at_once(cuda) == LOGITS_PER_CHUNK


def test_chunks_do_not_depend_on_free_memory_where_bits_must_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free_memory(monkeypatch, 32 * GIGABYTE)
    assert logits_at_once(torch.device("cpu")) == LOGITS_PER_CHUNK
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert logits_at_once(torch.device("cuda")) == LOGITS_PER_CHUNK


def test_a_setting_bounds_the_logits() -> None:
    head = LogProbHead(tiny_llama(), temperature=1.0, logits_per_chunk=3 * VOCABULARY + 1)
    assert head.chunks(7) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert LogProbHead(tiny_llama(), temperature=1.0).chunks(7) == [slice(0, 7)]


# Metrics


class Operations(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def inputs(device: str) -> LossInputs:
    values = torch.linspace(-3.0, -0.1, 12, device=device)
    numbers = torch.zeros(12, dtype=torch.long, device=device)
    return LossInputs(values, values, values, None, values, values, values, numbers, numbers[:1] + 12, True)


@pytest.mark.parametrize("first", [True, False])
def test_tokens_are_measured_without_waiting_for_the_device(first: bool) -> None:
    """A tensor on the meta device has no values, so that reading one fails."""
    meter, given = StepMeter(Ranks()), inputs("meta")
    losses = Losses(given.log_probs, {"clip_fraction": given.log_probs > 0})
    meter.add_tokens(given, losses, given.log_probs.sum(), first=first, fresh=given.log_probs > -1)
    with pytest.raises(RuntimeError, match="meta"):
        meter.metrics()


def test_the_host_does_not_read_more_often_with_more_chunks() -> None:
    def reads(chunk: int) -> tuple[int, int]:
        settings = TrainerSection(lr=1e-3, logits_per_chunk=chunk * VOCABULARY)
        one = Trainer(
            tiny_llama(),
            algorithm_named("grpo", {"overlong_buffer": 0}),
            settings,
            temperature=0.8,
            max_tokens=12,
        )
        with Operations() as operations:
            one.step(random_batch(0))
        return operations.counts["aten._local_scalar_dense.default"], operations.counts[
            "aten.addmm.default"
        ] + operations.counts["aten.mm.default"]

    few, many = reads(1000), reads(1)
    assert few[0] == many[0]
    assert few[1] < many[1]


def test_tokens_count_as_outside_by_the_ratio_of_the_engine_to_the_trainer() -> None:
    given = inputs("cpu")
    ratios = torch.tensor([0.5, 0.89, 0.91, 1 / 1.1, 1.0, 1.0, 1.0, 1.0, 1.09, 1 / 0.9, 1.12, 3.0])
    given = replace(given, engine=given.old + ratios.log())
    meter = StepMeter(Ranks())
    nothing = Losses(given.log_probs, {})
    meter.add_tokens(given, nothing, given.log_probs.sum(), first=True, fresh=ratios > 9)
    meter.add_tokens(given, nothing, given.log_probs.sum(), first=False, fresh=ratios > 9)
    assert meter.metrics()["outside"] == pytest.approx(5 / 12)


def test_tokens_of_older_weights_are_not_in_the_engine_gap() -> None:
    given = inputs("cpu")
    given = replace(given, engine=given.old - torch.arange(12.0))
    meter = StepMeter(Ranks())
    nothing = Losses(given.log_probs, {})
    meter.add_tokens(
        given, nothing, given.log_probs.sum(), first=True, fresh=torch.zeros(12, dtype=torch.bool)
    )
    assert "engine_gap" not in meter.metrics()
    meter.add_tokens(given, nothing, given.log_probs.sum(), first=True, fresh=torch.arange(12) == 4)
    found = meter.metrics()
    assert found["engine_gap"] == pytest.approx(4.0)
    assert found["logprob_gap"] == pytest.approx(5.5)
    assert found["logprob_gap_max"] == pytest.approx(11.0)
