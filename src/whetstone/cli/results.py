"""The results that the training commands print at the end of a run."""

from __future__ import annotations

from pathlib import Path

from whetstone.report.metrics import Record, read_metrics
from whetstone.report.run_data import paired_changes
from whetstone.report.run_signs import found_signs
from whetstone.run.display import Display, results_table


def print_results(display: Display, folder: Path, before: Record, after: Record) -> None:
    """Print pass@k and rewards before and after training, with the paired change; and the signs that hold
    over all steps.

    folder: the folder of the run.
    before, after: the records of the first and the last evaluation; empty without an evaluation.
    """
    changes = paired_changes(folder, [before, after]) if before and after else {}
    if after:
        display.print(results_table(before, after, changes))
    for sign in found_signs(read_metrics(folder / "metrics.jsonl")).values():
        display.log(f"warning: {sign}")
