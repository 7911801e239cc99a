"""Long work shows its progress: a bar on a terminal, and elsewhere a line from time to time."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console

from whetstone.core.progress import LINE_EVERY_S, Progress, duration


class Clock:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class WatchedSandbox:
    """A Progress without a terminal, whose clock and ticks are a test's."""

    def __init__(self) -> None:
        self.clock, self.out = Clock(), io.StringIO()
        self.progress = Progress(Console(file=self.out, width=200), clock=self.clock)

    def pass_s(self, seconds: float) -> list[str]:
        """Let time pass, with a tick every second, and return the new lines."""
        before = len(self.out.getvalue())
        for _ in range(round(seconds)):
            self.clock.now += 1
            self.progress.tick()
        return self.out.getvalue()[before:].splitlines()


@pytest.fixture
def watched() -> WatchedSandbox:
    return WatchedSandbox()


def test_a_line_has_amount_rate_elapsed_and_remaining_time(watched: WatchedSandbox) -> None:
    work = watched.progress.begin("evaluating heldout at step 0", 1584)
    watched.pass_s(5)
    work.update(120, "accepted 0.12")
    assert watched.pass_s(5) == [
        "evaluating heldout at step 0: 120/1584 (8%), 12.0/s, 10 s elapsed, about 2 min left  accepted 0.12"
    ]


def test_lines_come_in_time_while_one_unit_takes_long(watched: WatchedSandbox) -> None:
    work = watched.progress.begin("training", 30, done=2)
    watched.pass_s(8)
    work.phase("generate")
    lines = watched.pass_s(60)
    assert len(lines) >= 68 // 15
    assert lines[0] == "training: 2/30 (7%), 10 s elapsed  generate for 2 s"
    assert lines[-1] == "training: 2/30 (7%), 60 s elapsed  generate for 52 s"
    work.update(3)
    assert watched.pass_s(2) == ["training: 3/30 (10%), 70 s each, 70 s elapsed, about 32 min left"]


def test_the_interval_of_lines_is_within_the_documented_one() -> None:
    assert 5 <= LINE_EVERY_S < 15


def test_work_that_ends_in_a_moment_prints_nothing(watched: WatchedSandbox) -> None:
    for _ in range(30):
        with watched.progress.work("reading", 10) as work:
            watched.clock.now += 3
            watched.progress.tick()
            work.advance(10)
    assert watched.out.getvalue() == ""


def test_a_line_of_its_own_puts_the_next_one_off(watched: WatchedSandbox) -> None:
    work = watched.progress.begin("training", 100)
    for step in range(1, 20):
        assert watched.pass_s(4) == []
        work.update(step)
        watched.progress.say(f"step {step}")
        work.mark_printed()
    assert len(watched.pass_s(15)) == 1


def test_what_was_done_before_says_nothing_about_the_rate(watched: WatchedSandbox) -> None:
    work = watched.progress.begin("judging", 1000)
    work.skip(900)
    watched.clock.now += 9
    work.advance(10)
    assert watched.pass_s(1) == ["judging: 910/1000 (91%), 1.0/s, 10 s elapsed, about 90 s left"]


def test_bytes_are_shown_as_a_share(watched: WatchedSandbox) -> None:
    work = watched.progress.begin("apps", 4_000_000, counted=False)
    work.update(1_000_000, "1,234 rows")
    assert watched.pass_s(10) == ["apps: 25%, 10 s elapsed, about 30 s left  1,234 rows"]


def test_an_unknown_total_has_no_remaining_time(watched: WatchedSandbox) -> None:
    def slow() -> Iterator[int]:
        for number in range(30):
            watched.clock.now += 1
            watched.progress.tick()
            yield number

    assert list(watched.progress.track(slow(), "comparing")) == list(range(30))
    assert watched.out.getvalue().splitlines() == [
        "comparing: 9, 1.1 s each, 10 s elapsed",
        "comparing: 19, 1.1 s each, 20 s elapsed",
        "comparing: 29, 1.0 s each, 30 s elapsed",
    ]


def test_work_without_units_shows_its_time(watched: WatchedSandbox) -> None:
    with watched.progress.work("looking for accelerators", counted=False):
        assert watched.pass_s(10) == ["looking for accelerators: 10 s elapsed"]


def test_names_and_notes_are_plain_text(watched: WatchedSandbox) -> None:
    watched.progress.begin("[red]set", 4).update(1, "[/] 1 of [bold]")
    assert watched.pass_s(10) == [
        "[red]set: 1/4 (25%), 10 s each, 10 s elapsed, about 30 s left  [/] 1 of [bold]"
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (55, "55 s"), (99.4, "99 s"), (360, "6 min"), (5940, "99 min"), (7500, "2 h 5 min")],
)
def test_durations_are_rounded_for_a_reader(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_terminal_has_a_bar_and_no_lines() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=160)
    with Progress(console, clock=clock) as progress:
        work = progress.begin("judging", 40)
        clock.now += 20
        work.update(10, "accepted 0.5")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    last = drawn.replace("\r", "\n").strip().splitlines()[-1]
    for part in ("judging", "━", "10/40 (25%)", "2.0 s each, 20 s elapsed, about 60 s left", "accepted 0.5"):
        assert part in last


def test_a_thread_prints_the_lines_and_ends_with_the_work() -> None:
    printed = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "waiting: 0/1" in text:
                printed.set()
            return super().write(text)

    with Progress(Console(file=Out()), every_s=0.01) as progress:
        progress.begin("waiting", 1)
        assert printed.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "whetstone-progress"]


@pytest.mark.process
def test_a_pipe_gets_each_line_at_once() -> None:
    script = (
        "from rich.console import Console\nfrom whetstone.core.progress import Progress\n"
        "with Progress(Console(), every_s=0.01) as progress:\n"
        "    progress.begin('waiting', 1)\n    input()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline().startswith("waiting: 0/1 (0%)")
        child.stdin.write("\n")
        child.stdin.close()
