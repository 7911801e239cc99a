"""What a judge occupies on this machine, and what is left of it afterwards.

Processes are known by id and start time, so that a reused id is not taken for a survivor. Files and control
groups are known by their names, which carry the id of the process that made them. So nobody else's are
counted, whatever else runs on the machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

_OURS = re.compile(r"whetstone-(\d+)-")
_TICKS = os.sysconf("SC_CLK_TCK")

Process = tuple[int, int]
"""Process id and start time (in clock ticks since the machine started)."""


class Usage(Struct, frozen=True):
    """What processes use together: CPU seconds (of children that ended, too) and resident bytes."""

    processes: int
    cpu_s: float
    resident_bytes: int


class Traces(Struct, frozen=True):
    """What this process and its machine have, apart from processes, files and control groups."""

    descriptors: frozenset[str]
    mounts: frozenset[str]
    ipc: frozenset[str]
    """System V shared memory, semaphores and message queues."""


def traces() -> Traces:
    """What is there now."""
    mounts = {line.split(" ", 1)[1] for line in _lines("/proc/self/mountinfo")}
    tables = ((table, _lines(f"/proc/sysvipc/{table}")[1:]) for table in ("shm", "sem", "msg"))
    ipc = {f"{table} {line.split()[1]}" for table, lines in tables for line in lines}
    return Traces(frozenset(_descriptors()), frozenset(mounts), frozenset(ipc))


def left_over(before: Traces, processes: Iterable[Process], *, grace_s: float = 10.0) -> dict[str, list[str]]:
    """By kind: what is there beyond ``before``, what ``processes`` left, and which of them live.

    What goes within ``grace_s`` is not left over.
    """
    watched = list(processes)
    deadline = time.monotonic() + grace_s
    while True:
        left = _left_now(before, watched)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _left_now(before: Traces, watched: list[Process]) -> dict[str, list[str]]:
    now = traces()
    pids = {pid for pid, _ in watched}
    left = {
        "descriptors": sorted(now.descriptors - before.descriptors),
        "mounts": sorted(now.mounts - before.mounts),
        "ipc": sorted(now.ipc - before.ipc),
        "files": _made_by(pids, [tempfile.gettempdir(), "/dev/shm"]),
        "control groups": _made_by(pids, _group_directories()),
        "processes": [f"{pid} {_command(pid)}" for pid, start in watched if _started(pid) == start],
    }
    return {kind: names for kind, names in left.items() if names}


def _made_by(pids: set[int], places: Iterable[str]) -> list[str]:
    """What is called as our files and control groups are, after one of ``pids``."""
    found: set[str] = set()
    for place in set(places):
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                named = _OURS.match(name)
                if named and int(named[1]) in pids:
                    found.add(os.path.join(place, name))
    return sorted(found)


def _group_directories() -> Iterator[str]:
    """Every directory of every mounted control group hierarchy."""
    for line in _lines("/proc/self/mountinfo"):
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup"):
            yield from (directory for directory, _, _ in os.walk(fields.split()[4]))


def family(roots: Iterable[int]) -> list[Process]:
    """The living processes among ``roots`` and all their descendants."""
    children: dict[int, list[int]] = {}
    starts: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None and stat[0] != "Z":
            starts[int(entry)] = int(stat[19])
            children.setdefault(int(stat[1]), []).append(int(entry))
    waiting, found = list(roots), dict[int, int]()
    while waiting:
        pid = waiting.pop()
        if pid in starts and pid not in found:
            found[pid] = starts[pid]
            waiting += children.get(pid, [])
    return list(found.items())


def usage(processes: Iterable[Process]) -> Usage:
    """What processes use now. Memory that several share is counted for each of them."""
    count, ticks, pages = 0, 0, 0
    for pid, start in processes:
        stat = _stat(pid)
        if stat is not None and int(stat[19]) == start:
            count += 1
            ticks += sum(map(int, stat[11:15]))  # utime, stime, cutime, cstime
            pages += int(stat[21])
    return Usage(count, ticks / _TICKS, pages * resource.getpagesize())


def _descriptors() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them is gone again
            yield f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on, or None for a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _started(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None or stat[0] == "Z" else int(stat[19])


def _command(pid: int) -> str:
    return " ".join(_lines(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
