"""The copy-paste block of docs/training.md: from a pipeline's file to a page, run unchanged but smaller."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from whetstone.cli.main import main

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SMALLER = {
    "train": ["warmup.steps=40", "trainer.steps=2", "trainer.prompts_per_step=4", "model.threads=1",
              "model.scratch.hidden_size=48", "model.scratch.layers=1", "model.scratch.heads=2",
              "model.scratch.kv_heads=2", "model.scratch.intermediate_size=96",
              "evaluation={n: 1, k: [1], train_problems: 4}", "judge.workers=1"],
    "eval": ["--limit", "5", "--workers", "1", "--threads", "1"],
}  # fmt: skip


def commands() -> list[list[str]]:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    section = text.split("## A whole pipeline\n")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block
    return [shlex.split(line) for line in block[1].splitlines()]


@pytest.mark.extended
def test_the_block_goes_from_a_pipeline_to_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    done: list[str] = []
    for whetstone, verb, *words in commands():
        assert whetstone == "whetstone"
        more = SMALLER.get(verb, [])
        smaller = [word.replace("step-100", "step-2") for word in words]
        assert main([verb, *smaller, *more]) == 0, (verb, words)
        done.append(verb)
    assert done == ["train", "eval", "report", "report"]
    assert (tmp_path / "sets" / "micro" / "train.parquet").exists()
    assert (tmp_path / "runs" / "pipeline" / "checkpoints" / "step-2").exists()
    pages = [tmp_path / "runs/pipeline/report.html", tmp_path / "evals/pipeline/sampled/evaluation.html"]
    assert all("<html" in page.read_text(encoding="utf-8") for page in pages)
    assert len(os.listdir(tmp_path / "evals" / "pipeline")) == 2
