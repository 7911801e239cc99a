"""What a tool is worth to a trained policy: the runs of ``examples/arithmetic``, with and without calculator.

    .venv/bin/python benchmarks/tools.py runs --seeds 0 1 2

The folder holds runs ``arithmetic-SEED`` and ``arithmetic-tools-SEED``. Printed are the held-out pass@1 of
both policies before and after RL, and two paired differences with 95% intervals: with tools after RL against
without tools after RL, and against with tools before RL. The unit of the intervals is the problem; for all
seeds together its difference is the mean over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from before_after import evaluations
from whetstone.evaluate.passk import paired_difference

Values = dict[str, float]


def mean_of(columns: list[Values]) -> Values:
    """The mean of each problem over the seeds."""
    return {problem: statistics.fmean(column[problem] for column in columns) for problem in columns[0]}


def row(name: str, plain: tuple[Values, Values], tools: tuple[Values, Values], calls: str) -> str:
    """One row of the table, from the values before and after RL."""
    cells = [f"{statistics.fmean(values.values()):.3f}" for values in (*plain, *tools)]
    for before in (plain[1], tools[0]):
        found = paired_difference(before, tools[1])
        cells.append(f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]")
    return f"| {name} | {' | '.join([*cells, calls])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    arguments = parser.parse_args()
    print(
        "| seed | without: before | without: after | with: before | with: after | with - without, after "
        "| with: after - before | calls per episode |"
    )
    print("| --- " * 8 + "|")
    collected: list[list[Values]] = []
    for seed in arguments.seeds:
        plain = evaluations(arguments.runs / f"arithmetic-{seed}", "heldout")
        tools = evaluations(arguments.runs / f"arithmetic-tools-{seed}", "heldout")
        calls = " to ".join(f"{each.episode['calls_calculator']:.2f}" for each in tools)
        columns = [each.values("pass@1") for each in (*plain, *tools)]
        collected.append(columns)
        print(row(str(seed), (columns[0], columns[1]), (columns[2], columns[3]), calls))
    means = [mean_of(list(column)) for column in zip(*collected, strict=True)]
    print(row("all", (means[0], means[1]), (means[2], means[3]), ""))


if __name__ == "__main__":
    main()
