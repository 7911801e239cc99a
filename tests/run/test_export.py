"""`whetstone export`: a plain folder of a checkpoint, which is the trained model, or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.run.tiny_recipe import run, write_recipe
from whetstone.cli.main import main

pytest.importorskip("peft", reason="the extra `lora` is not installed")

LORA = (
    "trainer.lora.rank=4",
    "trainer.steps=2",
    "evaluation.n=1",
    "evaluation.k=[1]",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = run(write_recipe(folder), folder / "run", *LORA)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.process
def test_the_export_is_the_trained_model_as_transformers_loads_it(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert main(["export", str(finished / "step-2"), str(out)]) == 0
    assert not {"trainer", "state.json", "manifest.json"} & {file.name for file in out.iterdir()}
    model = AutoModelForCausalLM.from_pretrained(out)
    start = AutoModelForCausalLM.from_pretrained(finished / "start")
    changed = {
        name.split(".")[-2]
        for (name, a), b in zip(model.named_parameters(), start.parameters(), strict=True)
        if not torch.equal(a, b)
    }
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert (
        AutoTokenizer.from_pretrained(out).decode(AutoTokenizer.from_pretrained(out).encode("x=1")) == "x=1"
    )


@pytest.mark.process
def test_changed_weights_in_a_checkpoint_are_not_exported(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "run"
    shutil.copytree(finished, broken)
    folder = broken / "checkpoints" / "step-2"
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert main(["export", str(folder), str(tmp_path / "torn")]) == 2
    assert "is not a valid checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "torn").exists()


def test_the_error_for_a_missing_step_names_the_existing_ones(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(finished / "step-7"), str(tmp_path / "out")]) == 2
    assert "there are step-0, step-2" in capsys.readouterr().err
