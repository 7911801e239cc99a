"""What a person sees of a run: phases, steps and results. Files are the truth; this is a view."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from whetstone.evaluate.passk import Estimate
from whetstone.progress import progress_bar


class Display:
    """A live progress bar on a terminal, a line per event elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._progress = progress_bar(self.console, transient=False)
        self._task: TaskID | None = None
        self._name = ""
        self._started = 0.0

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def print(self, table: Table) -> None:
        """A table that stays."""
        self.console.print(table)

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """A stretch of work of ``total`` units begins."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._name = name
        self._started = time.monotonic()
        self._task = self._progress.add_task(name, total=total, completed=done)
        if not self.console.is_terminal:
            self.say(f"{name} ...")

    def advance(self, done: int, note: str = "") -> None:
        """``done`` units of it are complete."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, note=note)

    def phase(self, name: str) -> None:
        """What the current unit is busy with."""
        if self._task is not None:
            self._progress.update(self._task, note=f"[dim]{name}")

    def end(self, note: str = "") -> None:
        """The stretch of work is over."""
        seconds = time.monotonic() - self._started
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self.say(f"{self._name}: {note + ', ' if note else ''}{seconds:.0f} s")

    def step(self, record: dict[str, Any], steps: int) -> None:
        """A training step is complete."""
        seconds = record["time"]
        groups = f"{record['group/trained']}/{record['group/sampled']}"
        line = (
            f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}  "
            f"length {record['length/mean']:5.1f}  trained {groups}  "
            f"{seconds['step']:.1f} s (generate {seconds['generate']:.1f}, train {seconds['train']:.1f})"
        )
        self.advance(record["step"])
        self.say(line)


class Beside(Display):
    """What a person sees of a second model: lines that stay, marked with its name. The bar is the first's."""

    def __init__(self, name: str, display: Display) -> None:
        super().__init__(display.console)
        self._name = name

    def say(self, text: str) -> None:
        """See Display."""
        super().say(f"{self._name}: {text}")

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """See Display: the first model's run says the same."""

    def end(self, note: str = "") -> None:
        """See Display."""
        self.say(note)

    def step(self, record: dict[str, Any], steps: int) -> None:
        """See Display: its reward, below the line of the first."""
        self.say(f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}")


_TITLES = {"train": "training", "heldout": "held-out"}


def results_table(before: dict[str, Any], after: dict[str, Any]) -> Table:
    """pass@k on each problem set, before and after, with 95% intervals over problems.

    ``before`` and ``after`` are flat metrics; ``before`` is empty where there is none.
    """
    found = (key.split("/")[1] for key in after if key.startswith("eval/"))
    sets = {name: _TITLES.get(name, name) for name in sorted(set(found), key=lambda n: (n not in _TITLES, n))}
    table = Table(title="pass@k, with 95% intervals over problems")
    for column in ("problems", "", "before", "after", "change"):
        table.add_column(column)
    for name, title in sets.items():
        metrics = [
            k for k in after if k.startswith(f"eval/{name}/pass@") and not k.endswith(("_low", "_high"))
        ]
        for metric in metrics:
            now = _estimate(after, metric, name)
            then = _estimate(before, metric, name) if before else None
            table.add_row(
                f"{title} ({now.problems})",
                metric.rpartition("/")[2],
                _cell(then),
                _cell(now),
                f"{now.value - then.value:+.3f}" if then else "",
            )
    return table


def _estimate(record: dict[str, Any], metric: str, name: str) -> Estimate:
    return Estimate(
        value=record[metric],
        low=record[f"{metric}_low"],
        high=record[f"{metric}_high"],
        problems=int(record[f"eval/{name}/problems"]),
    )


def _cell(estimate: Estimate | None) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate else "-"
