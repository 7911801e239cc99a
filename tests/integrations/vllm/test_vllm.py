"""vLLM itself as a run's engine: what it samples, and the weights that it is given, are the trainer's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[3]

ENGINE = {
    "kind": "vllm",
    "options": {
        "python": sys.executable,
        "arguments": ["--enforce-eager", "--max-num-seqs", "64"],
        "environment": {"VLLM_CPU_KVCACHE_SPACE": "1"},
    },
}
SMALL = [
    "model.dtype=bfloat16",
    # Heads of 64, which vLLM's attention on a CPU has.
    "model.scratch.hidden_size=256",
    "model.scratch.heads=4",
    "model.scratch.kv_heads=4",
    "warmup.steps=150",
    "trainer.steps=4",
    "trainer.prompts_per_step=8",
    "evaluation.n=1",
    "evaluation.k=[1]",
    "evaluation.train_problems=8",
]


def test_a_run_samples_with_vllm_and_hands_it_its_weights(tmp_path: Path) -> None:
    recipe = REPOSITORY / "recipes" / "tiny.yaml"
    overrides = [*SMALL, f"engine={json.dumps(ENGINE)}", f"out={tmp_path / 'run'}"]
    subprocess.run([sys.executable, "-m", "whetstone", "train", str(recipe), *overrides], check=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    trained = [step for step in map(json.loads, lines) if step.get("loss/tokens")]
    # Steps whose weights differ from the first, so that an update that did not arrive would be seen.
    assert len(trained) >= 2
    gaps = [step["loss/logprob_gap"] for step in trained]
    print("mean |trainer - vLLM| log-prob of a token, by step:", gaps)
    assert max(gaps) < 0.05
