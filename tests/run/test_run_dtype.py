"""A run keeps the dtype that it began with, on whatever machine it is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.tiny_recipe import write_recipe
from whetstone.cli.main import main
from whetstone.engine import device as device_module
from whetstone.run.auto import with_choices
from whetstone.run.recipe import load_recipe


def machine(monkeypatch: pytest.MonkeyPatch, *, bf16: bool) -> None:
    """Make this machine one with or without bfloat16 instructions."""
    monkeypatch.setattr(device_module, "_cpu_computes_bf16", lambda: bf16)


def train(folder: Path, *overrides: str) -> int:
    words = ["model.device=cpu", "trainer.steps=1", "warmup.steps=2", *overrides]
    return main(["train", str(write_recipe(folder)), f"out={folder / 'run'}", *words])


@pytest.mark.extended
@pytest.mark.parametrize("began_with_bf16", [True, False])
def test_a_run_resumed_on_a_machine_of_the_other_kind_keeps_its_dtype(
    began_with_bf16: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dtype = "bfloat16" if began_with_bf16 else "float32"
    machine(monkeypatch, bf16=began_with_bf16)
    assert train(tmp_path, "model.dtype=auto") == 0
    assert f"computing in {dtype} on cpu, chosen by `model.dtype: auto`" in capsys.readouterr().out
    assert load_recipe(tmp_path / "run" / "recipe.yaml").model.dtype == dtype

    machine(monkeypatch, bf16=not began_with_bf16)
    assert train(tmp_path, "model.dtype=auto", "trainer.steps=2") == 0
    output = capsys.readouterr().out
    assert f"computing in {dtype} on cpu, as at the start of this run" in output
    assert ("has no bfloat16 instructions" in output) is began_with_bf16
    assert "from step 1" in output


def test_another_explicit_dtype_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(monkeypatch, bf16=False)
    assert train(tmp_path, "model.dtype=auto") == 0
    assert train(tmp_path, "model.dtype=bfloat16", "trainer.steps=2") == 2
    assert "model.dtype ('float32' there, 'bfloat16' now)" in capsys.readouterr().err


def test_later_stages_take_the_dtype_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = "stages=[{name: short, trainer: {steps: 1}}, {name: long, trainer: {steps: 1}}]"
    words = ["model.dtype=auto", f"out={tmp_path / 'run'}", stages]
    recipe = load_recipe(write_recipe(tmp_path), words)
    first = tmp_path / "run" / "1-short"
    first.mkdir(parents=True)
    (first / "recipe.yaml").write_text(write_recipe(tmp_path).read_text())  # its dtype is float32
    machine(monkeypatch, bf16=True)
    assert with_choices(recipe, lambda text: None).model.dtype == "float32"


def test_roles_on_several_hosts_must_name_the_dtype(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(write_recipe(tmp_path)), "model.dtype=auto", "flow={staleness: 0}"]
    for role in ("flow", "rollout", "trainer"):
        assert main(["role", role, *words]) == 2
        assert "add `model.dtype=bfloat16` or `model.dtype=float32`" in capsys.readouterr().err
