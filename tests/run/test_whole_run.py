"""One command takes a model from a recipe to a report; the page and the checkpoint are usable."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.run.tiny_recipe import command, write_recipe
from whetstone.cli.main import main

pytestmark = pytest.mark.process

WALKED = """
import traceback
from pathlib import Path
import whetstone
from whetstone.algorithm.algorithm import token_by_token
from whetstone.algorithm.presets.grpo import GRPO

class Walked(GRPO):
    @token_by_token
    def loss(self, inputs):
        ours = str(Path(whetstone.__file__).parent)
        files = {frame.filename for frame in traceback.extract_stack() if frame.filename.startswith(ours)}
        Path(__file__).with_name("walk").write_text(" ".join(sorted(files)))
        return super().loss(inputs)
"""
"""GRPO, which says by which files of ours its loss was reached."""


def test_a_run_leaves_everything_that_the_readme_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    greedy = "{benchmark: problems, data: 'micro:heldout', name: greedy, n: 1, temperature: 0, limit: 3}"
    rewards = "environment.reward={accepted: 1.5, failed: 0.5, bad_format: -1}"
    (tmp_path / "own_loss.py").write_text(WALKED)
    monkeypatch.syspath_prepend(tmp_path)
    typed = command(recipe, out, "algorithm.preset=own_loss.Walked", rewards, f"evaluation.sets=[{greedy}]")
    where = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(typed, capture_output=True, text=True, timeout=1500, env=where)
    assert done.returncode == 0, done.stderr
    # Who follows the loss has these files open; one is __main__.py, which the console command leaves out.
    walk = (tmp_path / "walk").read_text().split()
    assert len(walk) <= 6, walk
    assert "pass@1" in done.stdout
    assert "held-out" in done.stdout
    assert "references: 16 of a sample of 16 are accepted" in done.stdout
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [r["step"] for r in records if r["kind"] == "train"]
    assert steps == [1, 2, 3, 4, 5]
    evals = [r for r in records if r["kind"] == "eval"]
    assert [r["step"] for r in evals] == [0, 3, 5]
    assert all((r["eval/greedy/problems"], r["eval/heldout/problems"] > 3) == (3, True) for r in evals)
    last = [r for r in records if r["kind"] == "train"][-1]
    judged = sum(v for k, v in last.items() if k.startswith("verdict/"))
    assert judged == last["group/sampled"] * 4
    assert (out / "recipe.yaml").exists()
    assert len(list((out / "rollouts").glob("*.parquet"))) == 5

    assert main(["report", str(out)]) == 0
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")

    checkpoint = out / "checkpoints" / "step-5"
    arguments = ["--benchmark", "problems", "--data", "micro:heldout", "--limit", "2", "--n", "2", "--k", "1"]
    environment = ["--recipe", str(out / "recipe.yaml"), "--out", str(tmp_path / "eval")]
    assert main(["eval", "--model", str(checkpoint), *arguments, *environment]) == 0
    assert (tmp_path / "eval" / "problems" / "evaluation.json").exists()
