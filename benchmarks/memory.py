"""Planned against measured memory of tiny runs on the CPU. Prints a table.

    .venv/bin/python benchmarks/memory.py            # tiny runs, planned and measured
    .venv/bin/python benchmarks/memory.py --recipes  # the plans of the recipes that ship, for docs/scaling.md

The cases are those of ``tests/run/test_memory_plan.py``. The plan comes from the configuration alone.
Measured is what torch's CPU allocator gave out at most (``torch.profiler`` with ``profile_memory``), in two
phases: while the replies of a step are sampled, and while the step is made. Weights, optimizer, reference and
the engine's copy count in both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.run.memory_cases import CASES, SHARDED, measured, measured_rank, planned, planned_rank
from tests.run.recipe_memory import PLANNED, recipe_table
from whetstone.run.model_memory import GENERATION


def row(name: str, plan: dict[str, int], found: dict[str, int]) -> str:
    cells = [name]
    for phase in plan:
        ratio = plan[phase] / found[phase]
        cells += [f"{plan[phase] / 1e6:.2f}", f"{found[phase] / 1e6:.2f}", f"{ratio:.3f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipes", action="store_true", help="print the plans of the recipes that ship")
    torch.set_num_threads(1)
    if parser.parse_args().recipes:
        print("\n".join(recipe_table(PLANNED)))
        return
    print("| run | sampling: planned, MB | measured | ratio | step: planned, MB | measured | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, case in CASES.items():
        plan = planned(case)
        step = max(size for phase, size in plan.items() if phase != GENERATION)
        found = measured(case)
        print(row(name, {GENERATION: plan[GENERATION], "step": step}, found), flush=True)
    print("\n| rank | update: planned, MB | measured | ratio |")
    print("| --- | --- | --- | --- |")
    for name, (case, ranks) in SHARDED.items():
        plan, found = {"step": planned_rank(case, ranks)}, {"step": measured_rank(case, ranks)}
        print(row(name, plan, found), flush=True)


if __name__ == "__main__":
    main()
