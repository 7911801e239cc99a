"""Compiled layers compute what the layers compute; a machine without a compiler is told what it lacks."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.utils import fresh_cache

from tests.trainer.rank_processes import on_ranks
from tests.trainer.tiny_models import random_batch, routed, tiny_llama, tiny_moe
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.trainer import compiled_layers
from whetstone.trainer.compiled_layers import check_compiler
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")


@pytest.fixture(autouse=True)
def forgotten() -> Generator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are compiled up to the point where code for the device would be made, which takes minutes."""
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **options: compiled(self, backend="aot_eager", **options)
    )
    monkeypatch.setattr(compiled_layers, "check_compiler", lambda device: None)


def trainer(ranks: Ranks | None = None, **settings: Any) -> Trainer:
    spec = algorithm_named("grpo", {"overlong_buffer": 0, "kl_coef": 0.1})
    model = tiny_llama(num_hidden_layers=1)
    section = TrainerSection(lr=1e-3, minibatches=2, micro_batch_tokens=40, **settings)
    return Trainer(model, spec, section, temperature=0.8, max_tokens=12, ranks=ranks)


def check(one: Trainer, expected: dict[str, float]) -> None:
    assert one.step(random_batch(0)) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert counters["frames"]["ok"] > 2


@pytest.mark.extended
@pytest.mark.usefixtures("traced")
def test_compiled_layers_replay_recorded_experts() -> None:
    def step(**settings: Any) -> dict[str, float]:
        spec = algorithm_named("dr_grpo", {"overlong_buffer": 0})
        section = TrainerSection(lr=1e-3, micro_batch_tokens=40, **settings)
        one = Trainer(tiny_moe(), spec, section, temperature=0.8, max_tokens=12)
        return one.step(routed(random_batch(0)))

    expected = step(routing_replay=True)
    assert step()["entropy"] != pytest.approx(expected["entropy"], rel=1e-3)
    assert step(routing_replay=True, compile=True) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert counters["frames"]["ok"] > 2


@pytest.mark.extended
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("settings", [{}, {"activation_checkpointing": True}], ids=["plain", "checkpointed"])
def test_a_step_with_compiled_layers_is_that_without(settings: dict[str, Any]) -> None:
    plain, compiled = trainer(), trainer(compile=True, **settings)
    check(compiled, plain.step(random_batch(0)))
    frames = counters["frames"]["total"]
    compiled.step(random_batch(1, groups=3))
    assert counters["frames"]["total"] == frames  # rows of other lengths are not compiled anew
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    assert compiled.plain_copy().state_dict().keys() == plain.plain_copy().state_dict().keys()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("traced")
def test_compiled_layers_are_sharded() -> None:
    expected = trainer().step(random_batch(0))
    on_ranks(2, lambda ranks: check(trainer(ranks, compile=True), expected))


@needs_compiler
@pytest.mark.slow
def test_a_step_with_generated_code_is_that_without() -> None:
    check(trainer(compile=True), trainer().step(random_batch(0)))


@pytest.mark.extended
@needs_compiler
def test_a_working_compiler_is_accepted() -> None:
    check_compiler(torch.device("cpu"))


def test_without_a_compiler_the_remedy_is_named() -> None:
    with (
        fresh_cache(),
        config.patch({"cpp.cxx": ("/nowhere/g++",)}),
        pytest.raises(UserError, match=r"trainer.compile: .* on `cpu` .*C\+\+ compiler.*set it to false"),
    ):
        trainer(compile=True)
