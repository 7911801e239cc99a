"""The base install judges without torch: a virtual environment of its own, from this checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=1200)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*pip, str(ROOT)], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_judge_and_doctor_work_without_torch(base: Path, tmp_path: Path) -> None:
    absent = subprocess.run([str(base / "python"), "-c", "import torch"], capture_output=True, timeout=1200)
    assert absent.returncode != 0, "torch came along, so this proves nothing"

    problem = {
        "id": "add",
        "statement": "Add.",
        "tests": {"kind": "call", "function": "add", "cases": [{"args": [1, 2], "expected": 3}]},
    }
    (tmp_path / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
    (tmp_path / "program.py").write_text("def add(a, b):\n    return a + b\n", encoding="utf-8")
    judged = subprocess.run(
        [str(base / "whetstone"), "judge", "one", "problem.json", "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=1200,
    )
    assert judged.returncode == 0, judged.stderr
    assert "accepted" in judged.stdout

    doctor = subprocess.run([str(base / "whetstone"), "doctor"], capture_output=True, text=True, timeout=1200)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    named = subprocess.run([str(base / "whetstone"), "recipes", "tiny"], capture_output=True, cwd=tmp_path)
    assert named.stdout == (ROOT / "recipes" / "tiny.yaml").read_bytes(), named.stderr.decode()

    train = subprocess.run(
        [str(base / "whetstone"), "train", "tiny"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=1200,
    )
    assert train.returncode == 2
    assert "whetstone-rl[train]" in train.stderr
