"""What the commands that train print at the end of a run."""

from __future__ import annotations

from pathlib import Path

from whetstone.launch.display import Display, results_table
from whetstone.report.metrics import Record
from whetstone.report.run_data import paired_changes


def print_results(display: Display, folder: Path, before: Record, after: Record) -> None:
    """Print pass@k before and after training, with the paired change.

    folder: the run's folder.
    before, after: the records of the first and the last evaluation, empty where there is none.
    """
    changes = paired_changes(folder, [before, after]) if before and after else {}
    display.print(results_table(before, after, changes))
