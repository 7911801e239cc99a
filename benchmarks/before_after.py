"""Before and after of finished runs: the paired rise of each, and of all together.

    .venv/bin/python benchmarks/before_after.py runs/quickstart-seed0 runs/quickstart-seed1 ...

The unit of the interval is the problem: its rise is the mean over the runs that asked it, so the pooled
interval says what other problems of the same kind would show, with these seeds.
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

from whetstone.evaluate.passk import paired_difference
from whetstone.evaluate.results import Evaluation, load_evaluation


def evaluations(run: Path, name: str) -> tuple[Evaluation, Evaluation]:
    """The first and the last evaluation of a run on one problem set."""
    found: list[tuple[int, Path]] = []
    for folder in (run / "evaluations").iterdir():
        match = re.fullmatch(rf"step-(\d+)-{name}", folder.name)
        if match:
            found.append((int(match[1]), folder))
    found.sort()
    return load_evaluation(found[0][1]), load_evaluation(found[-1][1])


def main() -> None:
    """Print one row for each run, set and estimate, and the pooled rows."""
    runs = [Path(argument) for argument in sys.argv[1:]]
    for name in ("train", "heldout"):
        if not all(any((run / "evaluations").glob(f"step-*-{name}")) for run in runs):
            continue
        pairs = [evaluations(run, name) for run in runs]
        for estimate in pairs[0][0].estimates:
            rows = [(before.values(estimate), after.values(estimate)) for before, after in pairs]
            for run, (before, after) in zip(runs, rows, strict=True):
                print(f"{run.name:24} {_row(name, estimate, before, after)}")
            if len(runs) > 1:
                every = sorted({p for before, after in rows for p in before if p in after})
                before = {p: statistics.fmean(b[p] for b, _ in rows if p in b) for p in every}
                after = {p: statistics.fmean(a[p] for _, a in rows if p in a) for p in every}
                print(f"{'all together':24} {_row(name, estimate, before, after)}")


def _row(name: str, estimate: str, before: dict[str, float], after: dict[str, float]) -> str:
    rise = paired_difference(before, after)
    return (
        f"{name:8} {estimate}: {rise.a:.3f} -> {rise.b:.3f}, rise {rise.value:+.3f} "
        f"[{rise.low:+.3f}, {rise.high:+.3f}] over {len(before)} problems"
    )


if __name__ == "__main__":
    main()
