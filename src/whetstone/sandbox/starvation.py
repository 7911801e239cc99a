"""How long a run waited for what the machine did not give it, a core or a page: not the program's fault."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

_LATE_S = 0.1
"""A look that comes so much too late says that the supervisor waited as well."""


@dataclass
class LostTime:
    """Seconds in which runs were ready and had no core, or in which a sandbox was started for them.

    The runs of several sandboxes add to one object. Its owner sets it to zero.
    """

    seconds: float = 0.0


class Waited(NamedTuple):
    """What the kernel tells of the thread of a process that waited longest."""

    seconds: float
    preempted: bool
    """It lost its core as often as it gave it away: it computes, rather than sleeps again and again."""


class Held(NamedTuple):
    """What holds a run up, as it was seen in one look. A run that sleeps of its own will is not held up."""

    ready: bool = False
    """A process has, or waits for, a core."""
    computes: bool = False
    """And one of these does not just sleep again and again."""
    stalled: bool = False
    """None is ready, and one waits in the kernel for what no program can give it: a page from a disk, or a
    lock whose holder has no core. Every process takes such locks, as one for each library that many map."""


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
        self._ready_s = self._computes_s = self._stalled_s = self._ours_s = self._cpu_s = 0.0
        self._delayed_s = self._begun_late_s = 0.0
        self.deadline = started + limit_s
        self.starved = False
        """It computed, or would have, and the machine gave it so little that nothing can be said of it."""

    def late(self, now: float, planned: float) -> None:
        """A look that was planned for this time comes now."""
        if now - planned > _LATE_S:
            self._ours_s += now - planned

    def looked(self, now: float, cpu_s: float, held: Held) -> None:
        """The CPU seconds of a run until now, and what holds it up.

        Processes come and go, and what they waited goes with them: so it is reckoned from look to look.
        """
        waited_s = max(now - self._looked - (cpu_s - self._cpu_s), 0.0)
        self._looked, self._cpu_s = now, cpu_s
        if held.ready:
            self._ready_s += waited_s
            self._computes_s += waited_s if held.computes else 0.0
        elif held.stalled:
            self._stalled_s += waited_s

    def begun(self, begun: float) -> None:
        """The first process came to be at this time; 0.0 says that it has ended already."""
        self._begun_late_s = max(begun - self._started, 0.0)

    def delayed(self, delay_s: float, cpu_s: float, *, several: bool) -> None:
        """The first thread has waited so long in the kernel's run queue, and the run used so much CPU time.

        ``several`` threads or processes also wait for each other. That is at most the CPU time they used.
        """
        self._delayed_s = max(self._delayed_s, delay_s - cpu_s if several else delay_s)

    @property
    def lost_s(self) -> float:
        """Seconds that the machine kept the run waiting for a core. Nothing a run does alone adds to them."""
        return self._begun_late_s + max(self._computes_s, self._delayed_s)

    def over(self, now: float, waited: Waited, begun: float) -> bool:
        """Whether its time is up when what it waited, by now at least so much, is taken off.

        begun: when its first process came to be. Until then the fork-server waited, for a core or a page.
        """
        ready_s = max(waited.seconds, self._ready_s)
        waited_s = ready_s + self._stalled_s
        ours_s = self._ours_s + max(begun - self._started, 0.0)
        self.deadline = self._started + self._limit_s + min(waited_s + ours_s, self._most_s)
        # Who sleeps again and again waits each time, and would be excused for ever. So would who reads from a
        # disk without end, or waits for a child of vfork(2): that is the machine's doing only in a crowd.
        computed = waited.preempted or self._computes_s >= self._ready_s / 2 > 0
        crowded = computed and ready_s >= self._limit_s
        self.starved = ours_s >= self._most_s or (crowded and waited_s >= self._most_s)
        return now >= self.deadline
