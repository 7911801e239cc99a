"""A recipe that trains something in seconds, for tests of whole runs.

A model this small solves nothing, but it writes replies of many lengths: the penalty on long ones is what it
learns from.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.warm_command import WarmCommand, whetstone
from whetstone.report.ledger import latest_tokens
from whetstone.report.metrics import read_metrics
from whetstone.rollout.ledger import unaccounted

RECIPE = """
name: test
seed: 3
deterministic: true
model:
  scratch: {hidden_size: 48, layers: 1, heads: 2, kv_heads: 2, intermediate_size: 96, vocab_size: 512}
  dtype: float32
  threads: 1
warmup: {steps: 60, batch_size: 32, lr: 4.0e-3, wrong_share: 0.5}
data: {train: "micro:train", heldout: "micro:heldout"}
environment: {chat: false, prompt: "# {statement}\\n", prefix: "def f(xs):\\n    return ", extraction: whole}
sampling: {temperature: 1.0, max_tokens: 12}
algorithm: {preset: dapo, drop_zero_variance: false, refill_rounds: 0, overlong_buffer: 12}
trainer: {steps: 5, prompts_per_step: 4, samples_per_prompt: 4, minibatches: 2, lr: 1.0e-3,
  checkpoint_every: 2}
evaluation: {n: 2, k: [1, 2], train_problems: 4, every: 3}
judge: {workers: 1}
"""


def write_recipe(folder: Path) -> Path:
    """The recipe as a file."""
    path = folder / "recipe-source.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def command(recipe: Path, out: Path, *overrides: str) -> list[str]:
    """The command that a person would type."""
    return [sys.executable, "-m", "whetstone", "train", str(recipe), f"out={out}", *overrides]


def start(recipe: Path, out: Path, *overrides: str) -> WarmCommand:
    """Begin it, without the time that importing takes."""
    return WarmCommand("train", str(recipe), f"out={out}", *overrides)


def run(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, without the time that importing takes."""
    return whetstone("train", str(recipe), f"out={out}", *overrides)


def finished(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which must be a good one."""
    done = run(recipe, out, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def record_count(out: Path) -> int:
    """How many records the run has written."""
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def timeless(path: Path) -> list[str]:
    """The lines of metrics.jsonl without what depends on the clock."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record: dict[str, Any] = json.loads(line)
        record.pop("time")
        lines.append(json.dumps(record))
    return lines


def check_ledger(path: Path) -> dict[str, int]:
    """Check that every step of metrics.jsonl accounts for every token, and that the tokens with loss are
    those that its trainer has trained on; return the last account."""
    tokens: dict[str, int] = {}
    with_loss = 0
    for record in read_metrics(path):
        if record["kind"] == "train":
            tokens = latest_tokens([record])
            assert unaccounted(tokens) == 0, tokens
            with_loss += int(record["loss/tokens"])
            assert tokens["trained"] + tokens["replayed"] == with_loss, (record["step"], with_loss, tokens)
    assert with_loss > 0
    return tokens


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run's folder but its lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
