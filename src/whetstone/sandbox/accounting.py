"""Who counts what the processes of a run use: a control group, a process table, or one process's clock."""

from __future__ import annotations

import os
from dataclasses import dataclass

from whetstone.sandbox.cgroup import ControlGroup
from whetstone.sandbox.meter import Meter
from whetstone.sandbox.process_table import ProcessTable, TreeUsage
from whetstone.sandbox.zygote.lockdown import COUNTED, TASKS_CEILING

_SLACK_BYTES = 256 << 20


@dataclass(frozen=True)
class Usage:
    """What a run has used so far, its whole tree of processes."""

    cpu_s: float
    peak_bytes: int
    processes: int
    """Those there are now."""
    tasks: int
    """Processes and threads together."""


class Accounting:
    """The accounts of one fork-server. Without any, its runs are single processes."""

    def __init__(self, group: ControlGroup | None, table: ProcessTable | None) -> None:
        """Take over a group that the fork-server has joined, and its process table. It must be at rest."""
        self.group = group
        self.table = table
        self._counts = group.controllers if group is not None else frozenset[str]()
        self.own_tasks = self.own_processes = 0
        if group is not None:
            self.own_processes = group.processes()
        if group is not None and "pids" in self._counts:
            self.own_tasks = group.tasks()
            group.set_task_limit(self.own_tasks + TASKS_CEILING)

    @property
    def whole_tree(self) -> bool:
        """Whether a run may have more than one process, because all of them are accounted for."""
        return self.table is not None or self._counts >= COUNTED

    def group_for(self, resource: str) -> ControlGroup | None:
        """The group, if it counts ``cpu``, ``memory`` or ``pids``."""
        return self.group if resource in self._counts else None

    def begin(self, memory_bytes: int, tmp_bytes: int) -> None:
        """A run with this memory limit begins. Free, unless the last one had another limit."""
        if (group := self.group_for("memory")) is not None:
            # Far above the limit that decides: this one only bounds what a burst can take meanwhile.
            group.limit_memory(2 * memory_bytes + tmp_bytes + _SLACK_BYTES)

    def run_is(self, pid: int) -> None:
        """The run's first process is known."""
        if self.table is not None:
            self.table.of_run(pid)

    def let_go(self) -> None:
        """The run is being ended: nothing is to be held up on its way out, nor the fork-server."""
        if (group := self.group_for("memory")) is not None:
            group.limit_memory(None)

    def describe(self) -> dict[str, str]:
        """For each resource, who counts it."""
        said: dict[str, str] = {}
        for resource, name in (("cpu", "CPU time"), ("memory", "memory"), ("pids", "processes and threads")):
            if (group := self.group_for(resource)) is not None:
                said[name] = f"control group, version {group.version(resource)}"
            elif self.table is not None:
                said[name] = "process table of the run's namespace"
            else:
                said[name] = "the only process of a run: none can start another here"
        return said

    def close(self) -> None:
        """Give the descriptor of the process table back."""
        if self.table is not None:
            self.table.close()
            self.table = None


class TreeMeter:
    """Measures one run, from the first look on."""

    def __init__(self, first: Meter, accounting: Accounting, memory_limit_bytes: int) -> None:
        """``first`` is the run's first process."""
        self._first = first
        self._accounting = accounting
        self._memory_limit = memory_limit_bytes
        self._several = False
        self._cpu_s = 0.0
        self._peak = 0
        # What the group had used before this run. Should the run have more processes by now, those got
        # the few milliseconds until this first look for nothing.
        self._cpu_before = 0.0
        if (group := accounting.group_for("cpu")) is not None:
            self._cpu_before = group.cpu_s() - first.cpu_s() - first.children_cpu_s()

    def read(self) -> Usage:
        """What was used until now."""
        peak, threads = self._first.memory()
        processes, tasks, tree = self._look(max(threads, 1))
        alone = tasks <= max(threads, 1)
        self._several |= not alone
        self._cpu_s = max(self._cpu_s, self._tree_cpu_s(tree))
        self._peak = max(self._peak, peak, 0 if alone else self._tree_memory(tree))
        return Usage(self._cpu_s, self._peak, processes, tasks)

    def _look(self, first_threads: int) -> tuple[int, int, TreeUsage | None]:
        """Processes and tasks of the run; and what the process table says, if it is needed.

        While there is only the first process, that costs one call.
        """
        accounting = self._accounting
        if (group := accounting.group_for("pids")) is not None:
            tasks = max(group.tasks() - accounting.own_tasks, first_threads)
            if tasks == first_threads:
                return 1, tasks, None
            if accounting.group_for("cpu") is not None and accounting.group_for("memory") is not None:
                return group.processes() - accounting.own_processes, tasks, None
        if accounting.table is None or len(accounting.table.pids()) <= 1:
            return 1, first_threads, None
        tree = accounting.table.usage()
        return tree.processes, max(tree.tasks, first_threads), tree

    def _tree_cpu_s(self, tree: TreeUsage | None) -> float:
        if (group := self._accounting.group_for("cpu")) is not None:
            return group.cpu_s() - self._cpu_before
        if tree is not None:
            return tree.cpu_s
        return self._first.cpu_s() + (self._first.children_cpu_s() if self._accounting.whole_tree else 0.0)

    def _tree_memory(self, tree: TreeUsage | None) -> int:
        if (group := self._accounting.group_for("memory")) is not None:
            return self._memory_limit + 1 if group.memory_exhausted() else group.memory_bytes()
        if tree is None or self._accounting.table is None or tree.resident_bytes <= self._memory_limit:
            return tree.resident_bytes if tree is not None else 0
        proportional = self._accounting.table.proportional_bytes()
        return tree.resident_bytes if proportional is None else min(tree.resident_bytes, proportional)

    def final(self, cpu_s: float, peak_bytes: int) -> tuple[float, int]:
        """CPU seconds and peak bytes of the run, which has ended, given what the kernel reported in the end.

        That report lacks children whose end their parent ignored; a group has them.
        """
        if self._several and (group := self._accounting.group_for("cpu")) is not None:
            self._cpu_s = max(self._cpu_s, group.cpu_s() - self._cpu_before)
        return max(cpu_s, self._cpu_s if self._several else 0.0), max(peak_bytes, self._peak)

    def kill(self) -> None:
        """End the run: its first process, with which the fork-server ends all others.

        Among many busy processes that may be a while before its turn, so they are ended from here as well.
        """
        self._accounting.let_go()
        self._first.kill()
        if self._several and self._accounting.table is not None:
            self._accounting.table.kill_all()

    def close(self) -> None:
        """Give the descriptors back."""
        self._first.close()


def parallelism(tasks: int) -> int:
    """How many CPU seconds a run with this many tasks may use in a second."""
    return max(1, min(tasks, os.cpu_count() or 1))
