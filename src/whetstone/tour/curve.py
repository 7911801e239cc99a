"""The rewards of a run as a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whetstone.report.metrics import read_metrics

_BLOCKS = "▁▂▃▄▅▆▇█"
_ENDS = 5


def rewards(run: Path) -> list[float]:
    """The mean reward of each training step that has one."""
    records = [record for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "train"]
    return [record["reward/mean"] for record in records if "reward/mean" in record]


def sparkline(values: Sequence[float]) -> str:
    """One block for each value, from 0 to the largest of them."""
    top = max(values, default=0.0) or 1.0
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(last, max(0, round(value / top * last)))] for value in values)


def curve(values: Sequence[float]) -> str:
    """The sparkline, with the means of the first and the last steps."""
    if not values:
        return "no step had a reward"
    first, last = values[:_ENDS], values[-_ENDS:]
    return f"{sparkline(values)}  from {sum(first) / len(first):.2f} to {sum(last) / len(last):.2f}"
