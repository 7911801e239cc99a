"""The base install judges without torch, pyarrow and hypothesis: a virtual environment of its own, from this
checkout, and this environment with pyarrow and hypothesis blocked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "hypothesis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def write_problem(folder: Path) -> None:
    problem = {
        "id": "add",
        "statement": "Add.",
        "tests": {"kind": "call", "function": "add", "cases": [{"args": [1, 2], "expected": 3}]},
    }
    (folder / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
    (folder / "problem.jsonl").write_text(json.dumps(problem) + "\n", encoding="utf-8")
    (folder / "program.py").write_text("def add(a, b):\n    return a + b\n", encoding="utf-8")


def blocked(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code without pyarrow and hypothesis."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, cwd=folder, timeout=1200
    )


def test_the_judge_json_lines_and_the_service_need_neither_pyarrow_nor_hypothesis(tmp_path: Path) -> None:
    write_problem(tmp_path)
    command = "from whetstone.cli.main import main\nstatus = main({})\nassert status == {}, status\n"
    for code in (
        "import whetstone.judge, whetstone.service.serve, whetstone.cli.judge_serve\n",
        command.format(["judge", "one", "problem.json", "program.py"], 0),
        command.format(["data", "show", "problem.jsonl"], 0),
        command.format(["data", "convert", "problem.jsonl", "copy.jsonl.gz"], 0),
    ):
        done = blocked(tmp_path, code)
        assert done.returncode == 0, done.stderr
    for arguments in (
        ["data", "convert", "problem.jsonl", "problem.parquet"],
        ["data", "convert", "problem.jsonl", "rows.parquet", "--export-format", "trl"],
        ["data", "dedupe", "problem.jsonl", "--out", "folder"],
    ):
        done = blocked(tmp_path, command.format(arguments, 2))
        assert done.returncode == 0, done.stderr
        assert "pip install -c constraints.txt -e '.[parquet]'" in done.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=1200)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*pip, str(ROOT)], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.mark.extended
def test_judge_and_doctor_work_without_torch(base: Path, tmp_path: Path) -> None:
    for name in ("torch", "pyarrow", "hypothesis"):
        absent = subprocess.run([str(base / "python"), "-c", f"import {name}"], capture_output=True)
        assert absent.returncode != 0, f"{name} came along, so this proves nothing"

    write_problem(tmp_path)
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

    exam = subprocess.run([str(base / "whetstone"), "exam", "self"], capture_output=True, text=True)
    assert exam.returncode == 2
    assert "install it: pip install whetstone-exam" in exam.stderr

    named = subprocess.run([str(base / "whetstone"), "recipes", "tiny"], capture_output=True, cwd=tmp_path)
    # The first line names the schema of the installation.
    shipped = (ROOT / "recipes" / "tiny.yaml").read_bytes()
    assert named.stdout.split(b"\n", 1)[1] == shipped.split(b"\n", 1)[1], named.stderr.decode()

    train = subprocess.run(
        [str(base / "whetstone"), "train", "tiny"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=1200,
    )
    assert train.returncode == 2
    assert "whetstone-rl[train]" in train.stderr
