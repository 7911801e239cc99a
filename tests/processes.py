"""Processes of this machine, as tests look at them and wait for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

ENOUGH_S = 120.0
"""So long a test waits for what must come at some time; none is decided by how long it took."""


def descendants(root: int) -> set[int]:
    """The living processes below ``root``; a pid namespace's orphans stay below its first process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what must come at some time."""
    deadline = time.monotonic() + ENOUGH_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
