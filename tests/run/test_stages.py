"""A run in stages resumes in its current stage; each stage starts from the weights of the previous one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.tiny_recipe import write_recipe
from whetstone.cli.main import main
from whetstone.report.metrics import read_metrics

EVALUATION = "evaluation={n: 1, k: [1], train_problems: 2, max_tokens: 12}"
SMALL = ["deterministic=false", "warmup.steps=2", "data.heldout=null", EVALUATION]
SMALL += ["trainer.keep_checkpoints=2"]
STAGES = (
    "stages=[{name: short, sampling: {max_tokens: 8}, algorithm: {overlong_buffer: 2}, trainer: {steps: 1}},"
)


@pytest.mark.extended
@pytest.mark.process
def test_a_finished_stage_is_not_repeated_and_the_next_one_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_recipe(tmp_path), tmp_path / "run"

    def train(stages: str) -> int:
        return main(["train", str(recipe), f"out={out}", *SMALL, stages])

    assert train(STAGES + "{name: long, trainer: {steps: 1}}]") == 0
    first, second = out / "1-short", out / "2-long"
    model = "model.safetensors"
    started, ended = second / "checkpoints" / "step-0" / model, first / "checkpoints" / "step-1" / model
    assert started.read_bytes() == ended.read_bytes()
    before = (first / "metrics.jsonl").read_bytes()
    capsys.readouterr()

    assert train(STAGES + "{name: long, trainer: {steps: 2}}]") == 0
    said = capsys.readouterr().out
    assert "stage 1 of 2, short: is done" in said
    assert f"resuming {second} from step 1" in said
    assert (first / "metrics.jsonl").read_bytes() == before
    steps = [record["step"] for record in read_metrics(second / "metrics.jsonl") if record["kind"] == "train"]
    assert steps == [1, 2]

    assert train(STAGES.replace("steps: 1", "steps: 1, lr: 0.5") + "{name: long, trainer: {steps: 2}}]") == 2
    assert "trainer.lr (0.001 there, 0.5 now)" in capsys.readouterr().err
