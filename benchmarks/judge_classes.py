"""The judge on ClassEval's classes: what plain Python passes, judged without and with the reference.

    .venv/bin/python benchmarks/judge_classes.py ClassEval_data.json [TASK NUMBER ...]

The file is the one that FudanSELab/ClassEval publishes. A solution counts when plain Python, with the
packages of this interpreter, passes its tests in a directory of its own, twice. Each that does is judged
without a reference, where nothing but the proxy can accept it, and with itself as the reference.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from whetstone.core.problem import AssertTests, Limits, Problem
from whetstone.core.verdict import Judgement
from whetstone.judge import Judge, Program

_LIMITS = Limits(cpu_s=10.0, memory_mb=512)


def passes_plainly(row: dict[str, Any]) -> bool:
    """Whether plain Python passes the tests with the row's own solution, in one interpreter."""
    source = f"{row['solution_code']}\n{row['test']}\nimport unittest\nunittest.main()\n"
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "main.py").write_text(source)
            ran = subprocess.run(
                [sys.executable, "main.py"], cwd=folder, capture_output=True, timeout=120, check=False
            )
        if ran.returncode:
            return False
    return True


def problem(row: dict[str, Any], *, referenced: bool) -> Problem:
    """A row as a problem."""
    return Problem(
        id=row["task_id"],
        statement=row["skeleton"],
        tests=AssertTests(unittest=row["test"]),
        limits=_LIMITS,
        references=[Program("python", row["solution_code"])] if referenced else [],
    )


def _report(title: str, rows: list[dict[str, Any]], judged: Iterable[Judgement]) -> None:
    pairs = list(zip(rows, judged, strict=True))
    refused = [(row["task_id"], j.verdict.value, j.reason) for row, j in pairs if not j.accepted]
    shared = [row["task_id"] for row, j in pairs if j.shared_interpreter]
    print(f"{title}: {len(pairs) - len(refused)} of {len(pairs)} accepted; shared interpreter: {shared or 0}")
    for task, verdict, reason in refused:
        print(f"    {task}: {verdict}: {reason[:160]}")


def main() -> None:
    """Print what plain Python passes, and what the judge accepts of it."""
    wanted = {f"ClassEval_{number}" for number in sys.argv[2:]}
    rows = [r for r in json.loads(Path(sys.argv[1]).read_text()) if not wanted or r["task_id"] in wanted]
    plain = [row for row in rows if passes_plainly(row)]
    print(f"plain Python passes {len(plain)} of {len(rows)}")
    print("    not:", " ".join(r["task_id"] for r in rows if r not in plain))
    with Judge() as judge:
        for title, referenced in (("without a reference", False), ("with the reference", True)):
            problems = [problem(row, referenced=referenced) for row in plain]
            programs = [Program("python", row["solution_code"]) for row in plain]
            _report(title, plain, judge.judge_many(zip(problems, programs, strict=True)))


if __name__ == "__main__":
    main()
