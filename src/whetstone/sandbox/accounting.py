"""Who counts what the processes of a run use: a control group, a process table, or one process's clock."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from whetstone.sandbox.cgroup import ControlGroup
from whetstone.sandbox.meter import Meter
from whetstone.sandbox.process_table import ProcessTable, TreeUsage
from whetstone.sandbox.proportional import Proportional
from whetstone.sandbox.starvation import Held, Waited, waited_for_core
from whetstone.sandbox.zygote.lockdown import COUNTED, MAX_TASKS, TASKS_CEILING

_SLACK_BYTES = 96 << 20
_SHARED_WAIT_S = 0.005
"""How long a look at a few processes takes, to find out what they share."""
_TORN_IN_A_ROW = 5
"""So many readings of shared memory in which a process ended say something together."""
_FORK_S = 0.005
"""More than a fork-server's own part in starting a run costs."""


@dataclass(frozen=True)
class Usage:
    """What a run has used so far, its whole tree of processes."""

    cpu_s: float
    tasks: int
    """Processes and threads that there are now."""


class Accounting:
    """The accounts of one fork-server. Without any, its runs are single processes."""

    def __init__(self, group: ControlGroup | None, table: ProcessTable | None) -> None:
        """Take over a group that the fork-server has joined, and its process table. It must be at rest."""
        self.group = group
        self.table = table
        self._counts = group.controllers if group is not None else frozenset[str]()
        self.own_tasks = 0
        self.cpu_before = 0.0
        """What the group had used when the run began."""
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
        """A run with this memory limit begins. Nearly free, unless the last one had another limit."""
        if (group := self.group_for("cpu")) is not None:
            self.cpu_before = group.cpu_s()
        if (group := self.group_for("memory")) is not None:
            # Above the limit that decides, for what does not count there: files in memory, what the kernel
            # keeps for many processes, and ourselves. It bounds what a burst can take between two looks.
            group.limit_memory(memory_bytes + tmp_bytes + _SLACK_BYTES)

    def run_is(self, pid: int) -> None:
        """The run's first process is known."""
        if self.table is not None:
            self.table.of_run(pid)

    def unattended(self) -> TreeUsage | None:
        """What several processes of a run use whose first one is not known; None where it may be alone."""
        if self.table is None or not self.table.is_own:
            return None
        used = self.table.usage()
        return used if len(used.processes) > 1 else None

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
                if resource == "memory":
                    said[name] += "; shared maps by every page that was given out"
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
        self.several = False
        """More than one process was seen."""
        self._cpu_s = 0.0
        self._memory = self._peak = 0
        self._cpu_before = 0.0
        self._tree: TreeUsage | None = None
        self._proportional: Proportional | None = None
        self._torn = deque[int](maxlen=_TORN_IN_A_ROW)
        if (group := accounting.group_for("cpu")) is not None:
            # A little of the rest is ours, for starting the run; what is more, children have used by now.
            others = group.cpu_s() - first.cpu_s() - first.children_cpu_s()
            self._cpu_before = min(others, accounting.cpu_before + _FORK_S)

    def read(self) -> Usage:
        """CPU time and tasks until now: what is quickly seen."""
        self._memory, threads = self._first.memory()
        tasks, self._tree = self._look(max(threads, 1))
        self.several |= tasks > max(threads, 1)
        self._cpu_s = max(self._cpu_s, self._tree_cpu_s(self._tree))
        return Usage(self._cpu_s, tasks)

    def memory_bytes(self) -> int:
        """What all processes hold now, or the first one's peak where that is more; after ``read``."""
        if self.several:
            self._memory = max(self._memory, self._tree_memory(self._tree))
        self._memory = max(self._memory, self._out_of_sight())
        self._peak = max(self._peak, self._memory)
        return self._memory

    def _look(self, first_threads: int) -> tuple[int, TreeUsage | None]:
        """Tasks of the run; and what the process table says, if it is needed.

        While there is only the first process, that costs one call.
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
            return self._memory_limit + 1 if group.memory_exhausted() else group.memory_bytes()
        if tree is None or self._accounting.table is None:
            return 0
        if tree.resident_bytes <= self._memory_limit // 2:
            return tree.resident_bytes
        # It may be more than allowed if nothing is shared. What is, takes a while to find out; that one alone
        # holds too much, where each has what its parent had, does not, nor what each has for its tables.
        found, last = tree.least_bytes, self._proportional
        if found > self._memory_limit:
            return found
        if last is not None and last.done:
            if (last.most_bytes(tree) or self._memory_limit + 1) <= self._memory_limit:
                return max(found, last.bytes(tree, self._memory_limit))
            found = max(found, last.bytes(tree, self._memory_limit), self._of_torn(last, tree))
        if last is None or last.done:
            last = self._proportional = Proportional(self._accounting.table, tree)
            last.wait(_SHARED_WAIT_S)
        return max(found, last.bytes(tree, self._memory_limit))

    def _of_torn(self, reading: Proportional, tree: TreeUsage) -> int:
        """The least of several torn readings in a row, so that who ends processes without end is measured."""
        if (torn := reading.torn_bytes(tree)) is None:
            self._torn.clear()
            return 0
        self._torn.append(torn)
        return min(self._torn) if len(self._torn) == _TORN_IN_A_ROW else 0

    def _out_of_sight(self) -> int:
        """What shared memory may hold that no process has in its tables (any more), and so is nobody's.

        At most what was ever given out. A control group counts it, and holds up who takes too much.
        """
        faulted = self._first.faulted_bytes() if self._tree is None else self._tree.faulted_bytes
        if faulted <= self._memory_limit:
            return 0
        if (group := self._accounting.group_for("memory")) is not None:
            return self._memory_limit + 1 if group.memory_exhausted() else 0
        several = self._accounting.table if self.several else None
        shared = self._first.shares_memory() if several is None else several.shares_memory()
        return faulted if shared else 0

    def held(self) -> Held:
        """What holds the run up now; after ``read``."""
        if not self.several or (table := self._accounting.table) is None:
            return self._first.held()
        return table.held(self._tree or table.usage())

    def delay_s(self) -> float:
        """Seconds that the first thread has waited for a core."""
        return self._first.delay_s()

    def waited(self, pid: int) -> Waited:
        """How long the process that waited longest for a core did so; ``pid`` is the first one."""
        first = waited_for_core(pid) if pid > 0 else Waited(0.0, False)
        if not self.several or self._accounting.table is None:
            return first
        return max(first, self._accounting.table.waited())

    def begun(self) -> float:
        """When the first process came to be, by the monotonic clock; 0.0 when it has ended."""
        return self._first.begun()

    def final(self, cpu_s: float, peak_bytes: int) -> tuple[float, int]:
        """CPU seconds and peak bytes of the run, which has ended, given what the kernel reported in the end.

        That report lacks children whose end their parent ignored; a group has them.
        """
        if self.several and (group := self._accounting.group_for("cpu")) is not None:
            self._cpu_s = max(self._cpu_s, group.cpu_s() - self._cpu_before)
        return max(cpu_s, self._cpu_s if self.several else 0.0), max(peak_bytes, self._peak)

    def unshared_bytes(self) -> int:
        """Resident bytes that the first process shares with no other, now; 0 where that is not told."""
        return self._first.unshared_bytes()

    def kill(self) -> None:
        """End the run: its first process, with which the fork-server ends all others.

        Among many busy processes that may be a while before its turn, so they are ended from here as well.
        """
        self._accounting.let_go()
        self._first.kill()
        if self.several and self._accounting.table is not None:
            self._accounting.table.kill_all()

    def close(self) -> None:
        """Give the descriptors back; the run has ended."""
        self._first.close()
        if self._proportional is not None:
            self._proportional.wait()


def parallelism(tasks: int) -> int:
    """How many CPU seconds a run with this many tasks may use in a second."""
    return max(1, min(tasks, os.cpu_count() or 1))
