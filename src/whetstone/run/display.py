"""The terminal view of a run: phases, steps and results. The run's files hold all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from whetstone.core.progress import Progress, Work
from whetstone.evaluate.passk import PairedDifference
from whetstone.report.run_data import problem_counts, result_rows

# Columns that also have room for the parts of a step's time. Without them a step's line has at most 70.
_WIDE = 100


class Display:
    """The progress of a run, with permanent lines for steps and results. A context manager."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console()
        self.progress = Progress(self.console, transient=False, clock=clock)
        self._clock = clock
        self._work: Work | None = None
        self._work_began = clock()

    def __enter__(self) -> Display:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(*error)

    def log(self, text: str) -> None:
        """Print one permanent line."""
        self.progress.say(text)

    def print(self, table: Table) -> None:
        """Print a permanent table."""
        self.console.print(table)

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """Start a progress bar of ``total`` units, replacing the last one."""
        if self._work is not None:
            self.progress.end(self._work)
        self._work_began = self._clock()
        self._work = self.progress.begin(name, total, done)

    def advance(self, done: int, note: str = "") -> None:
        """Set the progress to ``done`` units."""
        if self._work is not None:
            self._work.update(done, note)

    def skip(self, done: int) -> None:
        """Count ``done`` units that were complete before the start, which do not enter the estimate."""
        if self._work is not None:
            self._work.skip(done)

    def phase(self, name: str) -> None:
        """Show the current phase of a unit."""
        if self._work is not None:
            self._work.phase(name)

    def end(self, note: str = "") -> None:
        """End the progress bar."""
        if self._work is None:
            return
        name, seconds = self._work.name, self._clock() - self._work_began
        self.progress.end(self._work)
        self._work = None
        self.log(f"{name}: {note + ', ' if note else ''}{seconds:.0f} s")

    def on_step(self, record: dict[str, Any], steps: int) -> None:
        """Report a complete training step."""
        seconds = record["time"]
        groups = f"{record['group/trained']}/{record['group/sampled']}"
        line = (
            f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}  "
            f"length {record['length/mean']:5.1f}  trained {groups}  "
            f"{seconds['step']:.{1 if seconds['step'] < 100 else 0}f} s"
        )
        if self.console.width >= _WIDE:
            line += f" (generate {seconds['generate']:.1f}, train {seconds['train']:.1f})"
        self.advance(record["step"])
        self.log(line)
        if self._work is not None:
            self._work.mark_printed()


def results_table(
    before: dict[str, Any], after: dict[str, Any], changes: Mapping[tuple[str, str], PairedDifference]
) -> Table:
    """Return a table of pass@k and rewards on each problem set, before and after, with 95% intervals over
    problems.

    before, after: flat metrics; ``before`` may be empty. changes: the paired differences by problem set and
    name of the estimate; missing ones are not shown.
    """
    kind = "pass@k" if any("/pass@" in key for key in after) else "mean rewards"
    title = f"{kind}, with 95% intervals over problems"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("problems", "before", "after", "change"):
        table.add_column(column, no_wrap=column != "problems")
    for row in result_rows(before, after, changes):
        table.add_row(*row)
    table.caption = f"problems: {problem_counts(after)}"
    return table
