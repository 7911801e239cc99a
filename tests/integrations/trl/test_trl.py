"""TRL trains with our reward: the example runs as its page says, and learns what the judge accepts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


def run(*command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_example_learns_accepted_replies(tmp_path: Path) -> None:
    example = ROOT / "examples" / "trl"
    run(example / "tiny.py", tmp_path)
    rows = tmp_path / "rows.parquet"
    run("-m", "whetstone", "data", "convert", tmp_path / "problems.jsonl", rows, "--export-format", "trl")
    tiny = ("--extraction", "whole", "--tokens", "1", "--lr", "0.02", "--steps", "15")
    shown = run(example / "grpo.py", rows, "--model", tmp_path / "model", *tiny, "--out", tmp_path / "out")
    rewards = [float(number) for number in re.findall(r"'reward': '?([\d.]+)", shown)]
    assert len(rewards) == 15
    assert sum(rewards[:3]) < 2 < sum(rewards[-3:])
    assert "'code_reward/accepted'" in shown
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_the_program_of_the_tutorial_learns_on_a_cpu(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "reward_of_a_trainer.md").read_text(encoding="utf-8")
    found = re.search(r'^```python title="(train_with_trl.py)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    assert found is not None
    program, rows = tmp_path / found[1], tmp_path / "rows.parquet"
    program.write_text(found[2], encoding="utf-8")
    run(ROOT / "examples" / "trl" / "tiny.py", tmp_path)
    run("-m", "whetstone", "data", "convert", tmp_path / "problems.jsonl", rows, "--export-format", "trl")
    rewards = json.loads(run(program, tmp_path / "model", rows, "1", "0.02").splitlines()[-1])
    assert len(rewards) == 15
    assert sum(rewards[:3]) < 2 < sum(rewards[-3:])


def test_a_completion_without_a_verdict_moves_nothing(tmp_path: Path) -> None:
    """A checker that fails gives None: with nothing but that and zeros, the weights stay as they are."""
    example = ROOT / "examples" / "trl"
    run(example / "tiny.py", tmp_path)
    script = f"""
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from whetstone.integrations.trl import CodeReward
problem = '''{{"id": "t", "statement": "",
"tests": {{"kind": "stdin", "cases": [{{"input": "", "output": "1"}}]}},
"checker": {{"type": "python", "source": "def check(input, output, expected): raise SystemError"}}}}'''
rows = Dataset.from_list([{{"prompt": [{{"role": "user", "content": "Print"}}], "problem": problem}}])
args = GRPOConfig("{tmp_path}/out", max_steps=1, max_completion_length=1, per_device_train_batch_size=16,
    num_generations=16, report_to="none", use_cpu=True, bf16=False, logging_steps=1, save_strategy="no")
reward = CodeReward(environment={{"extraction": "whole"}}, judge={{"workers": 1}})
trainer = GRPOTrainer(r"{tmp_path}/model", reward, args=args, train_dataset=rows)
before = [p.clone() for p in trainer.model.parameters()]
trainer.train()
assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters()))
name = "code_reward/no_reward"
[logged] = [h[name] for h in trainer.state.log_history if name in h]
assert logged > 0
"""
    run("-c", script)
