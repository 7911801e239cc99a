"""Counts what the processes of a run use, by a control group, a process table, or one process's clock."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass

from whetstone.sandbox.cgroup import ControlGroup
from whetstone.sandbox.cpu_starvation import StallObservation, ThreadWait, waited_for_core
from whetstone.sandbox.meter import ProcessMeter
from whetstone.sandbox.process_table import MemoryShare, ProcessTable, TreeUsage
from whetstone.sandbox.stopping import GroupProcesses, OnlyProcess, RunProcesses
from whetstone.sandbox.zygote.lockdown import COUNTED, MAX_TASKS, TASKS_CEILING

_SLACK_BYTES = 96 << 20
# How long reading the shared memory of a few processes takes.
_SHARED_WAIT_S = 0.005
# Number of torn readings of shared memory in a row whose minimum counts.
_TORN_IN_A_ROW = 5
# Upper bound of the fork-server's own CPU time for starting a run.
_FORK_S = 0.005
_EQUAL_WITHIN_BYTES = 1 << 20


@dataclass(frozen=True)
class _ResourceUsage:
    """What the whole process tree of a run has used so far."""

    cpu_s: float
    tasks: int
    """Current number of processes and threads."""


class Accounting:
    """The counters of one fork-server. Without a group or table, its runs are single processes."""

    def __init__(self, group: ControlGroup | None, table: ProcessTable | None) -> None:
        """Take over a group that the fork-server has joined, and its process table. No run may be active."""
        self.group = group
        self.table = table
        self._counts = group.controllers if group is not None else frozenset[str]()
        self.own_tasks = 0
        self.own_pids: list[str] = []
        self.cpu_before = 0.0
        """What the group had used when the run began."""
        if group is not None and "pids" in self._counts:
            self.own_tasks = group.tasks()
            self.own_pids = group.pids()
            group.set_task_limit(self.own_tasks + TASKS_CEILING)

    @property
    def whole_tree(self) -> bool:
        """Whether a run may have several processes, because all of them are counted."""
        return self.table is not None or self._counts >= COUNTED

    def group_for(self, resource: str) -> ControlGroup | None:
        """Return the group if it counts ``cpu``, ``memory`` or ``pids``."""
        return self.group if resource in self._counts else None

    def begin(self, memory_bytes: int, tmp_bytes: int) -> None:
        """Prepare a run with this memory limit. Cheap unless the limit changed since the last run."""
        if (group := self.group_for("cpu")) is not None:
            self.cpu_before = group.cpu_s()
        if (group := self.group_for("memory")) is not None:
            # Above the deciding limit, because the group also counts files in memory, kernel memory of many
            # processes, and this process. It bounds what a burst can take between two readings.
            group.limit_memory(memory_bytes + tmp_bytes + _SLACK_BYTES)

    def set_first_process(self, pid: int) -> None:
        """Set the first process of the run."""
        if self.table is not None:
            self.table.select_run(pid)

    def usage_without_first(self) -> TreeUsage | None:
        """Return the usage of a run whose first process is not known yet. None if it may have only one
        process."""
        if self.table is None or not self.table.is_own:
            return None
        used = self.table.usage()
        return used if len(used.processes) > 1 else None

    def lift_memory_limit(self) -> None:
        """Release the processes and the fork-server from the memory limit, because the run is being ended."""
        if (group := self.group_for("memory")) is not None:
            group.limit_memory(None)

    def describe(self) -> dict[str, str]:
        """Return the counter that is used for each resource."""
        counters: dict[str, str] = {}
        for resource, name in (("cpu", "CPU time"), ("memory", "memory"), ("pids", "processes and threads")):
            if (group := self.group_for(resource)) is not None:
                counters[name] = f"control group, version {group.version(resource)}"
            elif self.table is not None:
                counters[name] = "process table of the run's namespace"
                if resource == "memory":
                    counters[name] += "; shared memory by every page that was given out"
            else:
                counters[name] = "the only process of a run: no run can start another one here"
        return counters

    def close(self) -> None:
        """Close the descriptor of the process table."""
        if self.table is not None:
            self.table.close()
            self.table = None


class Proportional:
    """One reading of a run's memory with shared pages counted once, in a background thread.

    No other reading waits for it.

    The kernel makes the reader of a process wait while that process forks. With many processes, the fork may
    take long. Meanwhile the other limits are enforced.
    """

    def __init__(self, table: ProcessTable, before: TreeUsage) -> None:
        """Begin. ``before`` is the current usage: its ``resident_bytes`` are assumed for unreadable
        processes."""
        self._table = table
        self._before = before
        self._unseen = 0
        self._parts: dict[str, MemoryShare] = {}
        self._then: TreeUsage | None = None
        self._ended = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for pid in self._table.pids():
            if (part := self._table.memory_share(pid)) is None:
                self._unseen = self._before.resident_bytes
                return
            if part.bytes:
                self._parts[pid] = part
        then = self._table.usage()
        self._ended = time.monotonic()
        self._then = then

    @property
    def done(self) -> bool:
        """Whether all processes were read."""
        return not self._thread.is_alive()

    def torn_bytes(self, now: TreeUsage) -> int | None:
        """Return the sum of a reading in which a process ended after it was read; None otherwise."""
        parts = self._parts.copy()
        if self._then is None or not _torn(parts, self._then):
            return None
        return _sum(parts, self._read_with_parent(parts, now)).bytes

    def _read_with_parent(self, parts: Mapping[str, MemoryShare], now: TreeUsage) -> set[str]:
        """Return the processes whose memory was also read as their parent's.

        A child of vfork has its parent's memory until it executes. Both readings then show the same memory.
        If one of them has ended or executed since, this cannot be decided any more. Then the memory that was
        read is not held any more either.
        """
        parents = {pid: part.parent for pid, part in parts.items() if part.parent in parts}
        candidates = {
            pid: parent
            for pid, parent in parents.items()
            if abs(parts[parent].bytes - parts[pid].bytes) <= _EQUAL_WITHIN_BYTES
        }
        found = {pid for pid in candidates if not _still_holds(now, pid, parts[pid])}
        if unclear := {pid: parent for pid, parent in candidates.items() if pid not in found}:
            found |= self._table.sharing_with_parents(unclear)
            later = self._table.usage()
            found |= {pid for pid in unclear if not _still_holds(later, pid, parts[pid])}
        return found

    def bytes(self, now: TreeUsage, enough: int | None = None) -> int:
        """Return a lower bound of the memory of the processes that were read, including their growth since.

        If it exceeds ``enough``, memory that a child has from its parent is found, which takes milliseconds,
        and counts once.
        """
        if self._unseen:
            return self._unseen
        then, parts = self._then, self._parts.copy()  # the thread adds more at the same time
        torn, grown = _torn(parts, then or now), 0
        # An older reading may have seen a child with the memory of a parent that has executed since.
        if then is not None and now.began >= self._ended and then.holders == now.holders:
            grown = max(now.private_bytes - then.private_bytes, 0)
        found = _sum(parts)
        if enough is not None and (found.alone if torn else found.bytes + grown) > enough:
            found = _sum(parts, self._read_with_parent(parts, now))
        return found.alone if torn else found.bytes + grown

    def most_bytes(self, now: TreeUsage) -> int | None:
        """Return an upper bound of the memory; None if the reading is torn or still runs."""
        if self._then is None or _torn(self._parts, self._then):
            return None
        return _sum(self._parts).bytes + now.grown_bytes(self._before)

    def wait(self, most_s: float | None = None) -> None:
        """Wait until it is done, at most ``most_s``. It is soon done if the processes have ended."""
        self._thread.join(most_s)


def _torn(parts: Mapping[str, MemoryShare], later: TreeUsage) -> bool:
    """Return whether a process ended during the reading, so that its part of shared pages counted twice."""
    return not parts.keys() <= later.holders


def _sum(parts: Mapping[str, MemoryShare], without: Set[str] = frozenset()) -> MemoryShare:
    counted = [part for pid, part in parts.items() if pid not in without]
    return MemoryShare(sum(part.bytes for part in counted), sum(part.alone for part in counted))


def _still_holds(usage: TreeUsage, pid: str, part: MemoryShare) -> bool:
    process = usage.processes.get(pid)
    return process is not None and process.held_bytes + process.files_bytes > part.bytes // 2


class TreeMeter:
    """Measures one run, from the first reading on."""

    def __init__(self, first: ProcessMeter, accounting: Accounting, memory_limit_bytes: int) -> None:
        """``first`` is the run's first process."""
        self._first = first
        self._accounting = accounting
        self._memory_limit = memory_limit_bytes
        self.several = False
        """More than one process was seen."""
        self._cpu_s = 0.0
        self._memory = self._peak = 0
        self._cpu_before = 0.0
        self._tree: TreeUsage | None = None
        self._proportional: Proportional | None = None
        self._torn = deque[int](maxlen=_TORN_IN_A_ROW)
        if (group := accounting.group_for("cpu")) is not None:
            # A small part of the rest is the fork-server's own time for starting the run. More than that was
            # used by children.
            others = group.cpu_s() - first.cpu_s() - first.children_cpu_s()
            self._cpu_before = min(others, accounting.cpu_before + _FORK_S)

    def read(self) -> _ResourceUsage:
        """Return CPU time and tasks so far. This is the cheap part of a reading."""
        self._memory, threads = self._first.memory()
        tasks, self._tree = self._count_tasks(max(threads, 1))
        self.several |= tasks > max(threads, 1)
        self._cpu_s = max(self._cpu_s, self._tree_cpu_s(self._tree))
        return _ResourceUsage(self._cpu_s, tasks)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes at the last reading."""
        return self._cpu_s

    def memory_bytes(self) -> int:
        """Return the present memory of all processes, or the first one's peak if that is larger. Call after
        ``read``."""
        if self.several:
            self._memory = max(self._memory, self._tree_memory(self._tree))
        self._memory = max(self._memory, self._unmapped_shared_bytes(), self._kernel_bytes())
        self._peak = max(self._peak, self._memory)
        return self._memory

    def _count_tasks(self, first_threads: int) -> tuple[int, TreeUsage | None]:
        """Return the number of tasks, and the reading of the process table if it is needed.

        With a single process this costs one system call.
        """
        accounting = self._accounting
        if (group := accounting.group_for("pids")) is not None:
            tasks = max(group.tasks() - accounting.own_tasks, first_threads)
            counted = accounting.group_for("cpu") is not None and accounting.group_for("memory") is not None
            if tasks == first_threads or counted:
                return tasks, None
        processes = len(accounting.table.pids()) if accounting.table is not None else 1
        if accounting.table is None or not 1 < processes < MAX_TASKS:
            return max(processes, first_threads), None
        tree = accounting.table.usage()
        return max(tree.tasks, first_threads), tree

    def _tree_cpu_s(self, tree: TreeUsage | None) -> float:
        if (group := self._accounting.group_for("cpu")) is not None:
            return group.cpu_s() - self._cpu_before
        if tree is not None:
            return tree.cpu_s
        return self._first.cpu_s() + (self._first.children_cpu_s() if self._accounting.whole_tree else 0.0)

    def _tree_memory(self, tree: TreeUsage | None) -> int:
        if (group := self._accounting.group_for("memory")) is not None:
            return group.memory_bytes()
        if tree is None or self._accounting.table is None:
            return 0
        if tree.resident_bytes <= self._memory_limit // 2:
            return tree.resident_bytes
        # The total may exceed the limit only if nothing is shared. Finding out takes a while. It cannot be
        # shared if one process alone exceeds the limit; if each holds its parent's pages, or page tables of
        # its own, it may be.
        found, last = tree.least_bytes, self._proportional
        if found > self._memory_limit:
            return found
        if last is not None and last.done:
            if (last.most_bytes(tree) or self._memory_limit + 1) <= self._memory_limit:
                return max(found, last.bytes(tree, self._memory_limit))
            found = max(found, last.bytes(tree, self._memory_limit), self._least_of_torn(last, tree))
        if last is None or last.done:
            last = self._proportional = Proportional(self._accounting.table, tree)
            last.wait(_SHARED_WAIT_S)
        return max(found, last.bytes(tree, self._memory_limit))

    def _least_of_torn(self, reading: Proportional, tree: TreeUsage) -> int:
        """Return the least of several torn readings in a row, so that a run is measured although its
        processes keep ending."""
        if (torn := reading.torn_bytes(tree)) is None:
            self._torn.clear()
            return 0
        self._torn.append(torn)
        return min(self._torn) if len(self._torn) == _TORN_IN_A_ROW else 0

    def _unmapped_shared_bytes(self) -> int:
        """Return an upper bound of the shared memory that no process maps any more.

        It is the memory that was ever given out. A control group counts it exactly.
        """
        faulted = self._first.faulted_bytes() if self._tree is None else self._tree.faulted_bytes
        if faulted <= self._memory_limit:
            return 0
        if self._accounting.group_for("memory") is not None:
            return 0
        several = self._accounting.table if self.several else None
        shared = self._first.shares_memory() if several is None else several.shares_memory()
        return faulted if shared else 0

    def _kernel_bytes(self) -> int:
        """Return memory that the kernel holds for the run, if it exceeds the limit.

        A control group stops the process that takes too much. Without one, all sockets count as full.
        """
        if (group := self._accounting.group_for("memory")) is not None:
            return self._memory_limit + 1 if group.memory_exhausted() else 0
        table = self._accounting.table
        most = table.socket_bytes() if table is not None else 0
        return most if most > self._memory_limit else 0

    def stall(self) -> StallObservation:
        """Return what stalls the run now. Call after ``read``."""
        if not self.several or (table := self._accounting.table) is None:
            return self._first.stall()
        return table.stall(self._tree or table.usage())

    def delay_s(self) -> float:
        """Return the seconds that the first thread has waited for a core."""
        return self._first.delay_s()

    def longest_wait(self, pid: int) -> ThreadWait:
        """Return the longest wait of any process for a core. ``pid`` is the first process."""
        first = waited_for_core(pid) if pid > 0 else ThreadWait(0.0, False)
        if not self.several or self._accounting.table is None:
            return first
        return max(first, self._accounting.table.longest_wait())

    def start_time(self) -> float:
        """Return the start time of the first process by the monotonic clock; 0.0 if it has ended."""
        return self._first.start_time()

    def final_usage(self, cpu_s: float, peak_bytes: int) -> tuple[float, int]:
        """Return CPU seconds and peak bytes of the ended run, given the kernel's final report.

        That report lacks children whose exit status their parent ignored. A control group includes them.
        """
        if self.several and (group := self._accounting.group_for("cpu")) is not None:
            self._cpu_s = max(self._cpu_s, group.cpu_s() - self._cpu_before)
        return max(cpu_s, self._cpu_s if self.several else 0.0), max(peak_bytes, self._peak)

    def unshared_bytes(self) -> int:
        """Return the resident bytes that only the first process holds now; 0 if unknown."""
        return self._first.unshared_bytes()

    def kill(self) -> None:
        """End the run: kill its first process, after which the fork-server kills the others.

        With many busy processes the fork-server may wait for a core, so this method kills them too.
        """
        self._accounting.lift_memory_limit()
        self._first.signal(signal.SIGKILL)
        if self.several and self._accounting.table is not None:
            self._accounting.table.kill_all()

    def processes(self) -> RunProcesses:
        """Return the processes of the run."""
        accounting = self._accounting
        if accounting.table is not None:
            return accounting.table
        if accounting.group is not None and accounting.whole_tree:
            return GroupProcesses(accounting.group, accounting.own_pids)
        return OnlyProcess(self._first)

    def close(self) -> None:
        """Close the descriptors. The run has ended."""
        self._first.close()
        if self._proportional is not None:
            self._proportional.wait()


def parallelism(tasks: int) -> int:
    """Return how many CPU seconds a run with this many tasks can use in one second."""
    return max(1, min(tasks, os.cpu_count() or 1))
