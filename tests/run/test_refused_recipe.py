"""A recipe that cannot run is refused before its folder is touched, so the corrected one runs in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.run.tiny_recipe import write_recipe

pytestmark = pytest.mark.process

REFUSED = {
    "environment.chat=true": "this model has no chat template",
    "environment.prompt='{nonsense}'": "`environment.prompt`: cannot fill in 'nonsense'",
    "environment.max_prompt_tokens=5": "more than `environment.max_prompt_tokens` = 5",
    "model.scratch.max_positions=24": "exceed the context of 24",
    "judge.environment=/no/such/place": "/no/such/place",
    "data.heldout=PROBLEMS": "call Python functions",
    "data.train=WRONG": "0 of a sample of 1 are accepted, less than `data.references.accepted`",
    "stages=[{name: a}, {name: b, sampling: {max_tokens: 512}}]": "stage `b`: `sampling.max_tokens` is 512",
    "evaluation.sets=[{benchmark: problems, data: no-such.jsonl}]": "no-such.jsonl",
}

ALL_IN_ONE_PROCESS = """
import contextlib, io, json, os, sys
from whetstone.cli.main import main
recipe, out, *overrides = sys.argv[1:]
def tried(*more):
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        status = main(["train", recipe, f"out={out}", "warmup.steps=1", "trainer.steps=1", *more])
    return status, error.getvalue(), os.path.exists(out)
print(json.dumps([tried(override) for override in overrides] + [tried()]))
"""


def test_every_refusal_comes_before_the_first_file(tmp_path: Path) -> None:
    problem = {
        "id": "in-c++",
        "statement": "Add.",
        "language": "cpp",
        "tests": {"kind": "call", "function": "f", "cases": [{"args": [[1]], "expected": 1}]},
        "source": "test",
    }
    wrong: dict[str, Any] = {**problem, "id": "wrong", "language": "python"}
    wrong["references"] = [{"language": "python", "source": "def f(x):\n    return 2"}]
    for name, content in {"PROBLEMS": problem, "WRONG": wrong}.items():
        (tmp_path / name).with_suffix(".jsonl").write_text(json.dumps(content) + "\n", encoding="utf-8")
    named = re.compile("PROBLEMS|WRONG")
    overrides = [named.sub(lambda match: f"{tmp_path}/{match[0]}.jsonl", override) for override in REFUSED]
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    command = [sys.executable, "-c", ALL_IN_ONE_PROCESS, str(recipe), str(out), *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    *refused, corrected = json.loads(done.stdout)
    for (status, said, exists), words in zip(refused, REFUSED.values(), strict=True):
        assert status == 2, said
        assert words in said
        assert not exists
    status, said, _ = corrected
    assert status == 0, said
    assert (out / "checkpoints" / "step-1").exists()
