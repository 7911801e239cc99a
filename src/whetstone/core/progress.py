"""Shows the progress of long work, in the same way for every command: a bar on a terminal, else plain lines.

Without a terminal, a thread prints a line at fixed intervals, even while a single unit takes long. Work that
ends before its first line is due prints nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# Seconds between two lines about the same work. The documentation promises 15 s, also on a busy machine.
LINE_EVERY_S = 10.0
_TICK_EVERY_S = 1.0
# Columns that have room for a long bar, and for the elapsed and the remaining time.
_WIDE = 100

_T = TypeVar("_T")


def duration(seconds: float) -> str:
    """Format seconds: ``55 s``, ``6 min``, ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _rate(units: float, seconds: float) -> str:
    if units >= seconds:
        return f"{units / seconds:.1f}/s"
    each = seconds / units
    return f"{each:.1f} s each" if each < 10 else f"{duration(each)} each"


class Work:
    """Work in progress: the done part, the start time and a note. ``Progress.begin`` creates it."""

    def __init__(
        self, name: str, total: float | None, done: float, counted: bool, clock: Callable[[], float]
    ) -> None:
        self.name, self.total, self.done = name, total, done
        self._counted, self._clock = counted, clock
        self._began = self.line_at = clock()
        self._done_before = done
        self._note = ""
        self._phase: tuple[str, float] | None = None

    def advance(self, units: float = 1) -> None:
        """Add completed units."""
        self.done += units

    def update(self, done: float, note: str = "") -> None:
        """Set the number of completed units, and end the phase of the last unit."""
        self.done, self._note, self._phase = done, note, None

    def skip(self, done: float) -> None:
        """Set the units that were completed earlier. They do not count for the rate."""
        self.done = self._done_before = done

    def phase(self, name: str) -> None:
        """Set the phase of the current unit."""
        self._phase = name, self._clock()

    def mark_printed(self) -> None:
        """Record that a line about this work was printed now."""
        self.line_at = self._clock()

    def figures(self, *, wide: bool) -> str:
        """Return rate, elapsed time and remaining time, as far as they are known and have room."""
        elapsed, completed = self._clock() - self._began, self.done - self._done_before
        parts: list[str] = []
        if completed > 0 and elapsed > 0:
            if self._counted:
                parts.append(_rate(completed, elapsed))
            remains = self.total is not None and self.done < self.total
            if wide or not remains:
                parts.append(f"{duration(elapsed)} elapsed")
            if self.total is not None and remains:
                parts.append(f"about {duration((self.total - self.done) * elapsed / completed)} left")
        else:
            parts.append(f"{duration(elapsed)} elapsed")
        return ", ".join(parts)

    def amount(self) -> str:
        """Return the done part and the total."""
        if not self.total:
            return f"{self.done:.0f}" if self._counted else ""
        share = f"{min(self.done / self.total, 1):.0%}"
        return f"{self.done:.0f}/{self.total:.0f} ({share})" if self._counted else share

    def note(self) -> str:
        """Return the note, and the current phase with its duration."""
        parts = [self._note] if self._note else []
        if self._phase is not None:
            name, began = self._phase
            parts.append(f"{name} for {duration(self._clock() - began)}")
        return ", ".join(parts)

    def line(self, *, wide: bool = False) -> str:
        """Return everything in one line."""
        return f"{self.name}: {self.state(wide=wide)}"

    def state(self, *, wide: bool) -> str:
        """Return everything but the name in one line. ``wide``: with the elapsed and the remaining time."""
        text = ", ".join(part for part in (self.amount(), self.figures(wide=wide)) if part)
        return f"{text}{'  ' if self.note() else ''}{self.note()}"


class Progress:
    """Shows the progress of work on a console, by default on standard error. A context manager.

    transient: whether the bars disappear at the end. every_s: seconds between two lines about the same work,
    if there is no terminal. clock: monotonic seconds.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        transient: bool = True,
        every_s: float = LINE_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.on_terminal = self.console.is_terminal
        self._every_s, self._clock = every_s, clock
        self._bars = _Bars(self.console, transient)
        self._works: dict[Work, rich_progress.TaskID] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # A thread prints, because a single unit of work may take longer than the interval.
        self._thread = threading.Thread(target=self._run_ticks, name="whetstone-progress", daemon=True)

    def __enter__(self) -> Progress:
        if self.on_terminal:
            self._bars.start()
        elif not self.console.quiet:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._bars.stop()

    def begin(self, name: str, total: float | None = None, done: float = 0, *, counted: bool = True) -> Work:
        """Begin work of ``total`` units (None: unknown).

        counted: whether to show the number of units. For bytes, only the share is shown.
        """
        work = Work(name, total, done, counted, self._clock)
        with self._lock:
            self._works[work] = self._bars.add_task(name, total=total, completed=int(done), work=work)
        return work

    def end(self, work: Work) -> None:
        """End the work, and do not show it any more."""
        with self._lock:
            task = self._works.pop(work, None)
        if task is not None:
            self._bars.remove_task(task)

    @contextmanager
    def work(self, name: str, total: float | None = None, *, counted: bool = True) -> Generator[Work]:
        """Begin work that ends with the context."""
        work = self.begin(name, total, counted=counted)
        try:
            yield work
        finally:
            self.end(work)

    def track(self, items: Iterable[_T], name: str, total: float | None = None) -> Generator[_T]:
        """Yield the items. An item counts as done when the next one is requested."""
        with self.work(name, total) as work:
            for item in items:
                yield item
                work.advance()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def tick(self) -> None:
        """Print the lines that are due. If there is no terminal, the thread calls this."""
        now = self._clock()
        with self._lock:
            due = [work for work in self._works if now - work.line_at >= self._every_s]
            for work in due:
                work.mark_printed()
                self.say(work.line(wide=self.console.width >= _WIDE))

    def _run_ticks(self) -> None:
        while not self._ended.wait(min(_TICK_EVERY_S, self._every_s)):
            self.tick()


class _Bars(rich_progress.Progress):
    """The progress bars, one line each. What a narrow terminal has no room for is cut off at the end."""

    def __init__(self, console: Console, transient: bool) -> None:
        self._terminal = console  # rich asks for the bars before it sets its own attribute
        super().__init__(console=console, transient=transient, disable=not console.is_terminal)

    def get_renderables(self) -> Iterable[RenderableType]:
        """See rich."""
        wide = self._terminal.width >= _WIDE
        bar = rich_progress.BarColumn(bar_width=30 if wide else 10)
        table = Table.grid(padding=(0, 1))
        for task in self.tasks:
            work: Work = task.fields["work"]
            task.completed, task.total = work.done, work.total
            text = Text(work.state(wide=wide), no_wrap=True, overflow="ellipsis")
            table.add_row(Text(work.name, style="bold", no_wrap=True), bar.render(task), text)
        yield table
