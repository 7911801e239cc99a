"""The terminal view of a run: phases, steps and results. The run's files hold all of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from whetstone.core.progress import Progress, Work, duration
from whetstone.evaluate.passk import Estimate, PairedDifference
from whetstone.evaluate.results import REWARD

# The first estimate comes after so many steps, or after so many seconds of steps.
_MIN_STEPS, _MIN_SECONDS = 3, 30.0
# A part of the first evaluation is enough for an estimate if it took at least this long.
_MIN_SHARE, _MIN_SHARE_S = 0.05, 15.0
# The shares of the steps after which the estimate is repeated.
_REFINED_AT = (0.25, 0.5)
_MIN_CHANGE = 0.2
_MIN_TOTAL_S = 20.0


class _Forecast:
    """Estimates of a run's time. Methods that return text return a line to print, or an empty text.

    now: seconds of a monotonic clock. began: when the command started. steps: remaining steps. evaluations:
    remaining evaluations of this process.
    """

    def __init__(self, now: float, *, began: float, steps: int, evaluations: int) -> None:
        self._began = began
        self._steps, self._evaluations = steps, evaluations
        self._steps_done = self._evaluations_done = 0
        self._step_s = self._evaluation_s = 0.0
        self._evaluating_since: float | None = None
        self._part_reported = False
        self._last = now
        self._last_total: float | None = None
        self._checks = [round(share * steps) for share in _REFINED_AT]

    def on_evaluation(self, share: float, now: float) -> str:
        """Report that ``share`` of an evaluation is done: 0 at its start, 1 at its end."""
        if share == 0:
            self._evaluating_since = now
        since = self._last if self._evaluating_since is None else self._evaluating_since
        seconds = now - since
        if share >= 1:
            self._evaluations_done += 1
            self._evaluation_s += seconds
            self._evaluating_since, self._last = None, now
        first = self._evaluations_done == (share >= 1) and not self._steps_done
        if (
            self._part_reported
            or not first
            or share < _MIN_SHARE
            or seconds < _MIN_SHARE_S
            or self._evaluations < 2
        ):
            return ""
        self._part_reported = True
        total = self._evaluations * seconds / share
        return f"estimated time of all {self._evaluations} evaluations: about {duration(total)}"

    def on_step(self, now: float) -> str:
        """Report that a step is complete."""
        self._steps_done += 1
        self._step_s += now - self._last
        self._last = now
        left = self._seconds_left()
        total = now - self._began + left
        if self._last_total is None:
            due = self._steps_done >= _MIN_STEPS or self._step_s >= _MIN_SECONDS
            if not due or left < _MIN_TOTAL_S:
                return ""
        elif (
            self._steps_done not in self._checks
            or abs(total - self._last_total) < _MIN_CHANGE * self._last_total
        ):
            return ""
        self._last_total = total
        return f"estimated total: about {duration(total)} ({self._breakdown()} to go)"

    def _seconds_left(self) -> float:
        return (
            self._steps_left * self._seconds_per_step + self._evaluations_left * self._seconds_per_evaluation
        )

    @property
    def _steps_left(self) -> int:
        return max(0, self._steps - self._steps_done)

    @property
    def _evaluations_left(self) -> int:
        """Remaining evaluations, 0 until the duration of one is known."""
        return max(0, self._evaluations - self._evaluations_done) if self._evaluations_done else 0

    @property
    def _seconds_per_step(self) -> float:
        return self._step_s / self._steps_done

    @property
    def _seconds_per_evaluation(self) -> float:
        return self._evaluation_s / max(1, self._evaluations_done)

    def _breakdown(self) -> str:
        parts = [f"{self._steps_left} steps of {duration(self._seconds_per_step)}"]
        if self._evaluations_left:
            some = "evaluation" if self._evaluations_left == 1 else "evaluations"
            parts.append(f"{self._evaluations_left} {some} of {duration(self._seconds_per_evaluation)}")
        return ", ".join(parts)


class Display:
    """The progress of a run, with permanent lines for steps and results. A context manager."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console()
        self.progress = Progress(self.console, transient=False, clock=clock)
        self._clock, self._began = clock, clock()
        self._work: Work | None = None
        self._work_began = self._began
        self._forecast: _Forecast | None = None

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

    def plan(self, steps: int, evaluations: int) -> None:
        """Announce the remaining steps and evaluations, whose total time is estimated from the first ones."""
        self._forecast = _Forecast(self._clock(), began=self._began, steps=steps, evaluations=evaluations)

    def on_evaluation(self, share: float) -> None:
        """Report that ``share`` of a step's evaluation over all problem sets is done, including 0 and 1."""
        if self._forecast is not None:
            self._estimate(self._forecast.on_evaluation(share, self._clock()))

    def _estimate(self, text: str) -> None:
        if text:
            self.log(text)

    def on_step(self, record: dict[str, Any], steps: int) -> None:
        """Report a complete training step."""
        seconds = record["time"]
        groups = f"{record['group/trained']}/{record['group/sampled']}"
        line = (
            f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}  "
            f"length {record['length/mean']:5.1f}  trained {groups}  "
            f"{seconds['step']:.1f} s (generate {seconds['generate']:.1f}, train {seconds['train']:.1f})"
        )
        self.advance(record["step"])
        self.log(line)
        if self._work is not None:
            self._work.mark_printed()
        if self._forecast is not None:
            self._estimate(self._forecast.on_step(self._clock()))


class PartnerDisplay(Display):
    """The view of a second model: lines with its name. Progress is only shown for the first model."""

    def __init__(self, name: str, display: Display) -> None:
        super().__init__(display.console)
        self._name = name

    def log(self, text: str) -> None:
        """See Display."""
        super().log(f"{self._name}: {text}")

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """See Display. The first model's run shows the same work."""

    def end(self, note: str = "") -> None:
        """See Display."""
        self.log(note)

    def plan(self, steps: int, evaluations: int) -> None:
        """See Display. The first model's run has the same steps."""

    def on_step(self, record: dict[str, Any], steps: int) -> None:
        """See Display. Prints the reward below the first model's line."""
        self.log(f"step {record['step']:>4}/{steps}  reward {record.get('reward/mean', float('nan')):.3f}")


_TITLES = {"train": "training", "heldout": "held-out"}


def results_table(
    before: dict[str, Any], after: dict[str, Any], changes: Mapping[tuple[str, str], PairedDifference]
) -> Table:
    """Return a table of pass@k and rewards on each problem set, before and after, with 95% intervals over
    problems.

    before, after: flat metrics; ``before`` may be empty. changes: the paired differences by problem set and
    name of the estimate; missing ones are not shown.
    """
    found = (key.split("/")[1] for key in after if key.startswith("eval/"))
    sets = {name: _TITLES.get(name, name) for name in sorted(set(found), key=lambda n: (n not in _TITLES, n))}
    kind = "pass@k" if any("/pass@" in key for key in after) else "mean rewards"
    table = Table(title=f"{kind}, with 95% intervals over problems", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("problems")
    for column in ("before", "after", "change"):
        table.add_column(column, no_wrap=True)
    for name, title in sets.items():
        starts = (f"eval/{name}/pass@", f"eval/{name}/{REWARD}")
        metrics = [k for k in after if k.startswith(starts) and not k.endswith(("_low", "_high"))]
        for metric in metrics:
            now = _estimate(after, metric, name)
            then = _estimate(before, metric, name) if metric in before else None
            estimate = metric.rpartition("/")[2]
            change = changes.get((name, estimate))
            table.add_row(
                f"{title} ({now.problems}) {estimate}",
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


def _numbers(form: str, found: Estimate | PairedDifference) -> str:
    """Format a value and its interval without leading zeros, so that the table fits 80 columns."""
    return re.sub(r"\b0\.", ".", form.format(found.value, found.low, found.high))
