"""What a person sees of a run: phases, steps and results. The files hold all of it; this is a view."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from whetstone.evaluate.passk import Difference, Estimate
from whetstone.launch.forecast import Forecast
from whetstone.progress import Progress, Work


class Display:
    """The progress of a run, with lines that stay for steps and results. A context manager."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console()
        self.progress = Progress(self.console, transient=False, clock=clock)
        self._clock, self._began = clock, clock()
        self._work: Work | None = None
        self._work_began = self._began
        self._forecast: Forecast | None = None

    def __enter__(self) -> Display:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(*error)

    def say(self, text: str) -> None:
        """One line that stays."""
        self.progress.say(text)

    def print(self, table: Table) -> None:
        """A table that stays."""
        self.console.print(table)

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """A stretch of work of ``total`` units begins, in place of the last one."""
        if self._work is not None:
            self.progress.end(self._work)
        self._work_began = self._clock()
        self._work = self.progress.begin(name, total, done)

    def advance(self, done: int, note: str = "") -> None:
        """``done`` units of it are complete."""
        if self._work is not None:
            self._work.update(done, note)

    def skip(self, done: int) -> None:
        """``done`` units of it were complete before it began."""
        if self._work is not None:
            self._work.skip(done)

    def phase(self, name: str) -> None:
        """What the current unit is busy with."""
        if self._work is not None:
            self._work.phase(name)

    def end(self, note: str = "") -> None:
        """The stretch of work is over."""
        if self._work is None:
            return
        name, seconds = self._work.name, self._clock() - self._work_began
        self.progress.end(self._work)
        self._work = None
        self.say(f"{name}: {note + ', ' if note else ''}{seconds:.0f} s")

    def expect(self, steps: int, evaluations: int) -> None:
        """So many steps and evaluations are to come: their total time is estimated from the first ones."""
        self._forecast = Forecast(self._clock(), began=self._began, steps=steps, evaluations=evaluations)

    def evaluating(self, share: float) -> None:
        """``share`` of the evaluation of a step is done, of all its problem sets; 0 and 1 included."""
        if self._forecast is not None:
            self._estimate(self._forecast.evaluating(share, self._clock()))

    def _estimate(self, text: str) -> None:
        if text:
            self.say(text)

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
        if self._work is not None:
            self._work.said()
        if self._forecast is not None:
            self._estimate(self._forecast.stepped(self._clock()))


class Beside(Display):
    """What a person sees of a second model: lines with its name. The progress is shown for the first one."""

    def __init__(self, name: str, display: Display) -> None:
        super().__init__(display.console)
        self._name = name

    def say(self, text: str) -> None:
        """See Display."""
        super().say(f"{self._name}: {text}")

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """See Display: the first model's run shows the same work."""

    def end(self, note: str = "") -> None:
        """See Display."""
        self.say(note)

    def expect(self, steps: int, evaluations: int) -> None:
        """See Display: the first model's run has the same steps."""

    def step(self, record: dict[str, Any], steps: int) -> None:
        """See Display: its reward, below the line of the first."""
        self.say(f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}")


_TITLES = {"train": "training", "heldout": "held-out"}


def results_table(
    before: dict[str, Any], after: dict[str, Any], changes: Mapping[tuple[str, int], Difference]
) -> Table:
    """pass@k on each problem set, before and after, with 95% intervals over problems.

    before, after: flat metrics; ``before`` is empty where there is none.
    changes: the paired differences by problem set and k. A difference that is missing is not shown.
    """
    found = (key.split("/")[1] for key in after if key.startswith("eval/"))
    sets = {name: _TITLES.get(name, name) for name in sorted(set(found), key=lambda n: (n not in _TITLES, n))}
    table = Table(title="pass@k, with 95% intervals over problems", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("problems")
    for column in ("before", "after", "change"):
        table.add_column(column, no_wrap=True)
    for name, title in sets.items():
        metrics = [
            k for k in after if k.startswith(f"eval/{name}/pass@") and not k.endswith(("_low", "_high"))
        ]
        for metric in metrics:
            now = _estimate(after, metric, name)
            then = _estimate(before, metric, name) if before else None
            k = metric.rpartition("@")[2]
            change = changes.get((name, int(k)))
            table.add_row(
                f"{title} ({now.problems}) pass@{k}",
                _cell(then),
                _cell(now),
                _numbers("{:+.3f} [{:+.3f}, {:+.3f}]", change) if change else "",
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
    return _numbers("{:.3f} [{:.3f}, {:.3f}]", estimate) if estimate else "-"


def _numbers(form: str, found: Estimate | Difference) -> str:
    """A value and its interval without leading zeros, so that the table fits into 80 columns."""
    return re.sub(r"\b0\.", ".", form.format(found.value, found.low, found.high))
