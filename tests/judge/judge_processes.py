"""The processes below a judge, found in /proc, so that tests can wait for them and kill them.

A program makes itself known by its size: nothing else below a worker is as large as ``BIG_MB``.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

BIG_MB = 90
GROW = f"x = b'x' * ({BIG_MB + 20} << 20)\n"
"""A line that makes a program known."""
ENOUGH_S = 60.0


def _children() -> dict[int, list[int]]:
    """Of every process that lives now: its children that live."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            if fields[0] != "Z":
                found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def fork_servers(worker: int) -> list[int]:
    """The fork-servers of a worker: its direct children."""
    return sorted(_children().get(worker, []))


def below(pid: int, generations: int = 1 << 30) -> list[int]:
    """The living descendants of a process, so many generations of them."""
    tree = _children()
    found: list[int] = []
    parents = [pid]
    while parents and generations:
        parents = [child for parent in parents for child in tree.get(parent, [])]
        found += parents
        generations -= 1
    return found


def server_generations(idle_worker: int) -> int:
    """How many generations of processes a fork-server consists of here; a program is below them."""
    return next(number for number in range(20) if below(idle_worker, number) == below(idle_worker))


def runs_something_big(pid: int) -> bool:
    """Whether a program that made itself known runs below a process."""
    return any(_resident_mb(child) > BIG_MB for child in below(pid))


def waiting_mb(pid: int) -> float:
    """What the largest process below a process holds that sleeps; 0 where none does."""
    return max((_resident_mb(child) for child in below(pid) if _sleeps(child)), default=0.0)


def _sleeps(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def wait_for_something_big(pid: int) -> None:
    """Wait until a program that makes itself known runs below a process."""
    deadline = time.monotonic() + ENOUGH_S
    while not runs_something_big(pid):
        assert time.monotonic() < deadline, "the program did not start"
        time.sleep(0.01)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * resource.getpagesize() / (1 << 20)
