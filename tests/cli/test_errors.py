"""Mistakes that people made on their first days: the error names the cause and the way out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beside import data_beside
from whetstone.cli.main import main

MISTAKES: dict[str, list[str]] = data_beside(__file__)


def stdin_problem(case: dict[str, str], **fields: object) -> str:
    tests = {"kind": "stdin", "cases": [case]}
    return json.dumps({"id": "demo/one", "statement": "Print 1.", "tests": tests, **fields}) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the commands."""
    monkeypatch.chdir(tmp_path)
    right = {"input": "", "output": "1"}
    files = {
        "a.py": "print(1)\n",
        "expected.json": stdin_problem({"input": "", "expected": "1"}),
        "expected.jsonl": stdin_problem({"input": "", "expected": "1"}),
        "time.json": stdin_problem(right, time_limit=2),
        "cpu.json": stdin_problem(right, limits={"cpu": 2}),
        **dict.fromkeys(("empty.json", "empty.jsonl", "empty.yaml"), ""),
        **dict.fromkeys(("run/metrics.jsonl", "above/one/metrics.jsonl", "above/two/card.json"), ""),
        **{f"other/{name}.txt": "" for name in "abcde"},
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "nothing").mkdir()
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_its_cause_and_the_way_out(
    mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, said = MISTAKES[mistake]
    assert main(command.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.process
def test_a_model_folder_that_is_not_there_is_found_out_before_torch_is_loaded(folder: Path) -> None:
    words = ["eval", "--model", "./absent", "--benchmark", "problems", "--data", "builtin:heldout"]
    code = f"import sys\nfrom whetstone.cli.main import main\nprint(main({words}), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False"], done.stderr
