"""HumanEval and sanitized MBPP as problems, from the folder of shared data beside the repository."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from whetstone.core.problem import AssertTests, Limits, Problem, Program

_REPOSITORY = Path(__file__).resolve().parents[2]
_LIMITS = Limits(cpu_s=10.0, memory_mb=1024, output_mb=16)


def shared_folder() -> Path | None:
    """The data folder, or None where there is none."""
    root = Path(os.environ.get("WHETSTONE_SHARED", _REPOSITORY.parent / "shared"))
    folder = root / "data"
    return folder if (folder / "humaneval").is_dir() and (folder / "mbpp_sanitized").is_dir() else None


def humaneval(folder: Path) -> list[Problem]:
    lines = gzip.decompress((folder / "humaneval" / "HumanEval.jsonl.gz").read_bytes()).splitlines()
    return [_humaneval_problem(json.loads(line)) for line in lines]


def _humaneval_problem(row: dict[str, str]) -> Problem:
    tests = AssertTests(check=row["test"], entry_point=row["entry_point"])
    reference = Program("python", row["prompt"] + row["canonical_solution"])
    return Problem(row["task_id"], row["prompt"], tests, limits=_LIMITS, references=[reference])


def mbpp(folder: Path) -> list[Problem]:
    rows = json.loads((folder / "mbpp_sanitized" / "sanitized-mbpp.json").read_text())
    return [
        Problem(
            f"mbpp/{row['task_id']}",
            row["prompt"],
            AssertTests(setup="\n".join(row["test_imports"]), asserts=row["test_list"]),
            limits=_LIMITS,
            references=[Program("python", row["code"])],
        )
        for row in rows
    ]
