"""Measures the benchmark pages again, one after another: ``python -m benchmarks`` or ``make benchmarks``.

    python -m benchmarks --list
    python -m benchmarks [--only PAGE ...] [--set NAME=VALUE ...] [--hours 3] [--out .cache/benchmarks]

``pages.toml`` has the commands of each page, their expected minutes, whether they measure time, and what they
need. A need such as ``{trl}`` in a command is given by ``--set trl=PYTHON``; without it the command is
skipped. Before a command that measures time, the load of the last minute must fall to 0.5 within ten minutes.
Otherwise it is refused. The output of each command is kept in a log with commit, processor and load. A page
that is complete for this commit is not measured again, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[1]
PAGES = Path(__file__).with_name("pages.toml")
MOST_LOAD = 0.5
_WAIT_S = 600.0
_POLL_S = 5.0
# A command is ended after this multiple of its expected time.
_PATIENCE = 3


class BenchmarkCommand(Struct, frozen=True):
    """A command of a page. minutes: expected. timed: it measures time, so the machine must be idle."""

    run: str
    minutes: float
    timed: bool = True

    @property
    def needs(self) -> list[str]:
        """The names of the values that the user must give."""
        return sorted({name for _, name, _, _ in Formatter().parse(self.run) if name} - {"python", "work"})


class BenchmarkPage(Struct, frozen=True):
    """A page, and how to measure it. by_hand: why a part of it is not measured by this script."""

    name: str
    commands: list[BenchmarkCommand] = []
    by_hand: str = ""


class _Plan(Struct):
    page: list[BenchmarkPage]


def main() -> None:
    """Measure the pages of the command line. The exit status is 1 if a command failed or was refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the pages and their commands")
    parser.add_argument("--only", nargs="+", default=[], metavar="PAGE")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="values of commands")
    parser.add_argument("--hours", type=float, default=3.0, help="begin no command after so many hours")
    parser.add_argument("--wait", type=float, default=_WAIT_S, help="seconds to wait for an idle machine")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--pages", type=Path, default=PAGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    pages = read_pages(args.pages)
    known = {page.name for page in pages}
    if unknown := set(args.only) - known:
        raise SystemExit(f"unknown page {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    chosen = [page for page in pages if not args.only or page.name in args.only]
    if args.list:
        _print(chosen)
        return
    given = dict(pair.partition("=")[::2] for pair in args.set)
    raise SystemExit(0 if measure(chosen, given, args.out, args.hours, args.wait) else 1)


def read_pages(path: Path) -> list[BenchmarkPage]:
    """Return the pages of a plan."""
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Plan).page


def measure(
    pages: Sequence[BenchmarkPage], given: dict[str, str], out: Path, hours: float, wait_s: float
) -> bool:
    """Run all commands of the pages that have no result for this commit. Returns whether none failed."""
    out.mkdir(parents=True, exist_ok=True)
    state = out / "state.json"
    commit = _output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]) or "no repository"
    done: dict[str, str] = json.loads(state.read_text()) if state.exists() else {}
    deadline = time.monotonic() + 3600 * hours
    complete = True
    for page in pages:
        for number, command in enumerate(page.commands):
            key = f"{page.name}/{number}"
            if done.get(key) == commit:
                print(f"{key}: measured at this commit", flush=True)
                continue
            if missing := [name for name in command.needs if name not in given]:
                print(f"{key}: skipped; give {', '.join(f'--set {name}=…' for name in missing)}", flush=True)
                continue
            if time.monotonic() > deadline:
                print(f"{key}: not begun, the time is over; the same command resumes", flush=True)
                return False
            if _run(key, command, given, out, commit, wait_s):
                done[key] = commit
                state.write_text(json.dumps(done, indent=1))
            else:
                complete = False
    return complete


def _run(
    key: str, command: BenchmarkCommand, given: dict[str, str], out: Path, commit: str, wait_s: float
) -> bool:
    """Run a command on an idle machine, with its output in a log. Returns whether it succeeded."""
    if command.timed and not _is_idle(key, wait_s):
        return False
    work = out / "work" / key
    work.mkdir(parents=True, exist_ok=True)
    words = shlex.split(command.run.format(python=sys.executable, work=work, **given))
    log = out / f"{key.replace('/', '.')}.log"
    head = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit}, {_processor()}, {os.cpu_count()} cores"
    head += f", Python {platform.python_version()}, load {os.getloadavg()[0]:.2f}\n$ {shlex.join(words)}\n"
    print(f"{key}: about {command.minutes:g} minutes, log {log}", flush=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{ROOT / 'benchmarks'}"}
    with log.open("w", encoding="utf-8") as sink:
        sink.write(head)
        sink.flush()
        try:
            done = subprocess.run(
                words,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=60 * _PATIENCE * command.minutes,
            )
            status = f"status {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            status = f"failed: {error}"
        sink.write(f"# {status}, load {os.getloadavg()[0]:.2f}\n")
    if status != "status 0":
        print(f"{key}: {status}", flush=True)
    return status == "status 0"


def _is_idle(key: str, wait_s: float) -> bool:
    """Wait until the load of the last minute is low. Returns False if it is not in time."""
    end = time.monotonic() + wait_s
    while (load := os.getloadavg()[0]) > MOST_LOAD:
        if time.monotonic() > end:
            print(f"{key}: refused, the load is {load:.2f} and may be {MOST_LOAD}", flush=True)
            return False
        time.sleep(min(_POLL_S, wait_s))
    return True


def _print(pages: Sequence[BenchmarkPage]) -> None:
    for page in pages:
        for number, command in enumerate(page.commands):
            kind = "idle machine" if command.timed else "any load"
            print(f"{page.name}/{number}: {command.minutes:g} minutes, {kind}: {command.run}")
        if page.by_hand:
            print(f"{page.name}: not measured here: {page.by_hand}")
    print(f"together {sum(c.minutes for page in pages for c in page.commands):g} minutes")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
