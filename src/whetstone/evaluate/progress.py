"""How far an evaluation is, and its result so far."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from whetstone.evaluate.tables import percent
from whetstone.evaluate.tally import Tally
from whetstone.progress import Progress

_NOTE_EVERY_S = 0.2


class ProgressView:
    """The progress of an evaluation with the running estimate, and what it waits for. A context manager."""

    def __init__(
        self, name: str, total: int, console: Console, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._progress = Progress(console, transient=False, clock=clock)
        self._work = self._progress.begin(name, total)
        self._noted = self._said = -1
        self._noted_at = clock()

    def __enter__(self) -> ProgressView:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def show(self, tally: Tally) -> None:
        """Called once with the replies that were there, and then for every reply."""
        now, first, last = self._clock(), self._noted < 0, tally.samples == tally.total
        if first:
            self._work.skip(tally.samples)
        # An estimate takes longer than a reply of a short evaluation does.
        if first or last or now - self._noted_at >= _NOTE_EVERY_S:
            self._noted, self._noted_at = tally.samples, now
            self._work.update(tally.samples, _note(tally))

    def minute(self, tally: Tally, awaited: str) -> None:
        """Called every minute with what is awaited. It is printed when no reply came."""
        moved, self._said = tally.samples > self._said, tally.samples
        if not moved:
            line = self._work.line()
            self._progress.say(f"{line}, {awaited}" if awaited else line)
            self._work.said()


def _note(tally: Tally) -> str:
    found = tally.so_far()
    if found is None:
        return ""
    note = f"pass@1 {percent(found.value)} ({percent(found.low)} to {percent(found.high)})"
    without = tally.failed + tally.judge_errors
    return f"{note}, {without} without a verdict" if without else note
