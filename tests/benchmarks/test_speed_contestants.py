"""What ``benchmarks/judge_speed.py`` measures is done: by the contestants that need nothing installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import whetstone.sandbox.zygote

pytestmark = pytest.mark.process

DRIVER = Path(__file__).parents[2] / "benchmarks" / "speed" / "driver.py"
ZYGOTE = str(Path(whetstone.sandbox.zygote.__file__).parent)
RIGHT = "print(sum(map(int, input().split())))"
CASES = [("1 2\n", "3\n"), ("5\n", "5\n")]


def problem() -> dict[str, object]:
    cases = [{"input": given, "output": wanted} for given, wanted in CASES]
    return {"id": "sum", "statement": "", "tests": {"kind": "stdin", "cases": cases}}


def accepted(name: str, flags: list[str], *sources: str) -> int:
    """How many of the sources a contestant accepts."""
    tasks = [{"source": source, "cases": CASES, "problem": problem()} for source in sources]
    options = {"python": sys.executable, "zygote": ZYGOTE, "tier": "restricted"}
    done = subprocess.run(
        [sys.executable, *flags, str(DRIVER), name, json.dumps(options)],
        input=json.dumps({"work": tasks}) + "\nwork\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    ready, answer, end = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert answer["wall_s"] > 0
    assert end["waited_s"] > 0
    return answer["accepted"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["whetstone", "sequence", "python-sei", "python"])
def test_judges_accept_only_right_programs(name: str) -> None:
    assert accepted(name, [], RIGHT, "print(3)", "print(", RIGHT) == 2


def test_the_floor_runs_programs_in_forks_of_the_preloaded_zygote() -> None:
    checks = "import os\nif os.getppid() == 1: raise SystemExit('no fork')\n"
    assert accepted("floor", ["-I", "-S"], checks + RIGHT, "1 / 0", "input(); input()") == 1
    assert accepted("empty", ["-I", "-S"], "1 / 0") == 1
