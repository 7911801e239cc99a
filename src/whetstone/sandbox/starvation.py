"""How long a run was ready and had to wait for a core: the machine's fault, not the program's."""

from __future__ import annotations

import os
from typing import NamedTuple

_LATE_S = 0.1
"""A look that comes so much too late says that the supervisor waited as well."""


class Waited(NamedTuple):
    """What the kernel tells of the thread of a process that waited longest."""

    seconds: float
    preempted: bool
    """It lost its core as often as it gave it away: it computes, rather than sleeps again and again."""


def waited_for_core(pid: int) -> Waited:
    """Seconds in a run queue; 0 where the kernel does not say.

    From /proc/PID/task/TID/schedstat (CPU time, run queue delay, slices; nanoseconds).
    """
    longest, thread = 0, ""
    try:
        for name in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{name}/schedstat", "rb") as file:
                waited = int(file.read().split()[1])
            if waited > longest:
                longest, thread = waited, name
        with open(f"/proc/{pid}/task/{thread or pid}/status", "rb") as file:
            return Waited(longest / 1e9, preempted(file.read()))
    except (OSError, IndexError, ValueError):
        return Waited(longest / 1e9, False)  # it ended meanwhile, or the kernel keeps no such figures


def preempted(status: bytes) -> bool:
    """Whether a thread lost its core as often as it gave it away, as its ``status`` in /proc says."""
    given, taken = (
        status.partition(name)[2].split(None, 1)[:1]
        for name in (b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:")
    )
    return bool(given and taken) and int(taken[0]) >= int(given[0])


class Patience:
    """The wall clock of one run: its limit, and what is added for time that the machine did not give it."""

    def __init__(self, started: float, limit_s: float, most: float) -> None:
        """``most``: at most so many times the limit is added."""
        self._started = self._looked = started
        self._limit_s, self._most_s = limit_s, limit_s * most
        self._tree_waited_s = self._tree_starved_s = self._late_s = self._cpu_s = 0.0
        self.deadline = started + limit_s
        self.starved = False
        """It computed, or would have, and the machine gave it so little that nothing can be said of it."""

    def late(self, now: float, planned: float) -> None:
        """A look that was planned for this time comes now."""
        if now - planned > _LATE_S:
            self._late_s += now - planned

    def looked(self, now: float, cpu_s: float, *, ready: bool, computes: bool) -> None:
        """The CPU seconds of a run of several processes until now; whether one waits for a core, to compute.

        Processes come and go, and what they waited goes with them: so it is reckoned from look to look.
        """
        waited_s = max(now - self._looked - (cpu_s - self._cpu_s), 0.0)
        if ready:
            self._tree_waited_s += waited_s
        if computes:
            self._tree_starved_s += waited_s
        self._looked, self._cpu_s = now, cpu_s

    def over(self, now: float, waited: Waited, begun: float) -> bool:
        """Whether its time is up when what it waited, by now at least so much, is taken off.

        begun: when its first process came to be. Until then the fork-server waited, for a core or a page.
        """
        waited_s = max(waited.seconds, self._tree_waited_s)
        ours_s = self._late_s + max(begun - self._started, 0.0)
        self.deadline = self._started + self._limit_s + min(waited_s + ours_s, self._most_s)
        # Who sleeps again and again waits each time, and would be excused for ever.
        computed = waited.preempted or self._tree_starved_s >= self._tree_waited_s / 2 > 0
        self.starved = ours_s >= self._most_s or (computed and waited_s >= self._most_s)
        return now >= self.deadline
