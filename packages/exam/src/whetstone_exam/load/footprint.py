"""The resources that a judge uses on this machine, and those that remain after its end.

A process is identified by its id and start time, so that a reused id does not count as a survivor. Files and
control groups have the id of the process that made them in their names. Other programs on the machine are
therefore never counted.
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

_ENTRY_NAME = re.compile(r"whetstone-(\d+)-")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Process = tuple[int, int]
"""Process id and start time (in clock ticks since the machine started)."""


class ProcessUsage(Struct, frozen=True):
    """The sum over processes: CPU seconds (including ended children) and resident bytes."""

    processes: int
    cpu_s: float
    resident_bytes: int


class _Traces(Struct, frozen=True):
    """The resources of this process and machine, except processes, files and control groups."""

    descriptors: frozenset[str]
    mounts: frozenset[str]
    ipc: frozenset[str]
    """System V shared memory, semaphores and message queues."""


def read_traces() -> _Traces:
    """Return the present resources."""
    mounts = {line.split(" ", 1)[1] for line in _read_lines("/proc/self/mountinfo")}
    tables = ((table, _read_lines(f"/proc/sysvipc/{table}")[1:]) for table in ("shm", "sem", "msg"))
    ipc = {f"{table} {line.split()[1]}" for table, lines in tables for line in lines}
    return _Traces(frozenset(_open_descriptors()), frozenset(mounts), frozenset(ipc))


def find_leftovers(
    before: _Traces, processes: Iterable[Process], *, grace_s: float = 10.0
) -> dict[str, list[str]]:
    """Return what remains, by kind: resources that ``before`` lacks, entries of ``processes``, and those that
    still run.

    A resource that disappears within ``grace_s`` is no leftover.
    """
    watched = list(processes)
    deadline = time.monotonic() + grace_s
    # Killed processes and mounts disappear with a delay, so leftovers are checked repeatedly.
    while True:
        left = _leftovers_now(before, watched)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _leftovers_now(before: _Traces, watched: list[Process]) -> dict[str, list[str]]:
    now = read_traces()
    pids = {pid for pid, _ in watched}
    left = {
        "descriptors": sorted(now.descriptors - before.descriptors),
        "mounts": sorted(now.mounts - before.mounts),
        "ipc": sorted(now.ipc - before.ipc),
        "files": temporary_entries(watched),
        "control groups": _entries_of(pids, _cgroup_directories()),
        "processes": [f"{pid} {_command_line(pid)}" for pid, start in watched if _start_time(pid) == start],
    }
    return {kind: names for kind, names in left.items() if names}


def _entries_of(pids: set[int], places: Iterable[str]) -> list[str]:
    """Return the files and control groups whose names contain one of ``pids``."""
    found: set[str] = set()
    for place in set(places):
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                named = _ENTRY_NAME.match(name)
                if named and int(named[1]) in pids:
                    found.add(os.path.join(place, name))
    return sorted(found)


def _cgroup_directories() -> Iterator[str]:
    """Yield every directory of every mounted control group hierarchy."""
    for line in _read_lines("/proc/self/mountinfo"):
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup"):
            yield from (directory for directory, _, _ in os.walk(fields.split()[4]))


def temporary_entries(processes: Iterable[Process]) -> list[str]:
    """Return the temporary files and folders whose names contain the id of one of ``processes``."""
    return _entries_of({pid for pid, _ in processes}, [tempfile.gettempdir(), "/dev/shm"])


def open_descriptors(processes: Iterable[Process]) -> int:
    """Return the number of descriptors that processes have open; those that have ended have none."""
    count = 0
    for pid, start in processes:
        if _start_time(pid) == start:
            with contextlib.suppress(OSError):
                count += len(os.listdir(f"/proc/{pid}/fd"))
    return count


def process_tree(roots: Iterable[int], *, zombies: bool = False) -> list[Process]:
    """Return the living processes among ``roots``, and all their descendants.

    zombies: also those that have ended and wait for their parents.
    """
    children: dict[int, list[int]] = {}
    starts: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or (stat := _read_stat(int(entry))) is None:
            continue
        # A zombie has released its resources, and only waits for its parent.
        if zombies or stat[0] != "Z":
            starts[int(entry)] = int(stat[19])
            children.setdefault(int(stat[1]), []).append(int(entry))
    waiting, found = list(roots), dict[int, int]()
    while waiting:
        pid = waiting.pop()
        if pid in starts and pid not in found:
            found[pid] = starts[pid]
            waiting += children.get(pid, [])
    return list(found.items())


def process_usage(processes: Iterable[Process]) -> ProcessUsage:
    """Return the present usage of processes. Memory that several processes share counts for each of them."""
    count, ticks, pages = 0, 0, 0
    for pid, start in processes:
        stat = _read_stat(pid)
        if stat is not None and int(stat[19]) == start:
            count += 1
            ticks += sum(map(int, stat[11:15]))  # utime, stime, cutime, cstime
            pages += int(stat[21])
    return ProcessUsage(count, ticks / _TICKS_PER_S, pages * resource.getpagesize())


def _open_descriptors() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            yield f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}"


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The second field is the command in parentheses. It may contain spaces and parentheses itself.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _start_time(pid: int) -> int | None:
    stat = _read_stat(pid)
    return None if stat is None or stat[0] == "Z" else int(stat[19])


def _command_line(pid: int) -> str:
    return " ".join(_read_lines(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
