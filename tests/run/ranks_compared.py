"""Whether two runs are one: by what was sampled, and by how far apart their weights are."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from safetensors.torch import load_file


def replies(out: Path) -> list[tuple[object, ...]]:
    """Every reply of a run, with its verdict and its reward, in order."""
    columns = ("step", "problem_id", "reply", "verdict", "reward")
    rows: list[tuple[object, ...]] = []
    for file in sorted((out / "rollouts").iterdir()):
        rows += [tuple(row[c] for c in columns) for row in pq.read_table(file).to_pylist()]
    return rows


def movement(out: Path, other: Path, start: Path) -> float:
    """The distance of two checkpoints' weights, in units of how far they have moved."""
    a, b, s = (load_file(path / "model.safetensors") for path in (out, other, start))
    moved = sum(float((a[n] - s[n]).norm() ** 2) for n in a)
    assert moved > 0
    return (sum(float((a[n] - b[n]).norm() ** 2) for n in a) / moved) ** 0.5
