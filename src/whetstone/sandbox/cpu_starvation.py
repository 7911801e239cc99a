"""Measures how long a run waited for a core or a page. The program is not charged for this time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

# If a reading is this late, the supervisor itself waited for a core.
_LATE_S = 0.1


@dataclass
class LostTime:
    """Seconds in which runs were ready but had no core, or in which a sandbox was started for them.

    The runs of several sandboxes add to one object. Its owner resets it to zero.
    """

    seconds: float = 0.0


class ThreadWait(NamedTuple):
    """The kernel's figures for the longest waiting main thread of a run."""

    seconds: float
    preempted: bool
    """It was preempted at least as often as it slept: it computes."""


class StallObservation(NamedTuple):
    """What stalled a run at one reading. A run that sleeps voluntarily is not stalled."""

    ready: bool = False
    """A process has a core or waits for one."""
    computes: bool = False
    """At least one of these computes, rather than sleeping again and again."""
    stalled: bool = False
    """No process is ready, and one waits in the kernel for something that no program can provide: a page from
    a disk, or a lock whose holder has no core. Every process takes such locks, for example one for each
    library that many map."""


def waited_for_core(pid: int) -> ThreadWait:
    """Return the seconds in a run queue; 0 if the kernel does not report them.

    The source is /proc/PID/task/TID/schedstat (CPU time, run queue delay, slices; nanoseconds).
    """
    longest, thread = 0, ""
    try:
        for name in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{name}/schedstat", "rb") as file:
                waited = int(file.read().split()[1])
            if waited > longest:
                longest, thread = waited, name
        with open(f"/proc/{pid}/task/{thread or pid}/status", "rb") as file:
            return ThreadWait(longest / 1e9, preempted(file.read()))
    except (OSError, IndexError, ValueError):
        return ThreadWait(longest / 1e9, False)  # it has ended, or the kernel keeps no such figures


def preempted(status: bytes) -> bool:
    """Return whether a thread was preempted as often as it slept, by its ``status`` in /proc."""
    given, taken = (
        status.partition(name)[2].split(None, 1)[:1]
        for name in (b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:")
    )
    return bool(given and taken) and int(taken[0]) >= int(given[0])


class WallClock:
    """The wall clock of one run: its limit, and extensions for time that the machine did not provide."""

    def __init__(self, started: float, limit_s: float, most: float, used_s: float = 0.0) -> None:
        """``most``: the limit is extended at most by this factor. ``used_s``: CPU seconds used before."""
        self._started = self._last_reading = started
        self._limit_s, self._most_s = limit_s, limit_s * most
        self._ready_s = self._computing_s = self._stalled_s = self._supervisor_late_s = 0.0
        self._cpu_s = used_s
        self._delayed_s = self._start_delay_s = 0.0
        self.deadline = started + limit_s
        self.starved = False
        """Whether it was ready to compute, but the machine gave it too little CPU time for a verdict."""

    def record_lateness(self, now: float, planned: float) -> None:
        """Record that a reading planned for ``planned`` happens at ``now``."""
        if now - planned > _LATE_S:
            self._supervisor_late_s += now - planned

    def record_usage(self, now: float, cpu_s: float, stall: StallObservation) -> None:
        """Record the CPU seconds of a run so far and what stalls it.

        Processes come and go with their waiting times, so the waits are accumulated from reading to reading.
        """
        waited_s = max(now - self._last_reading - (cpu_s - self._cpu_s), 0.0)
        self._last_reading, self._cpu_s = now, cpu_s
        if stall.ready:
            self._ready_s += waited_s
            self._computing_s += waited_s if stall.computes else 0.0
        elif stall.stalled:
            self._stalled_s += waited_s

    def record_start(self, start_time: float) -> None:
        """Record the start time of the first process; 0.0 means that it has ended already."""
        self._start_delay_s = max(start_time - self._started, 0.0)

    def record_delay(self, delay_s: float, cpu_s: float, *, several: bool) -> None:
        """Record the run queue delay of the first thread and the CPU time of the run.

        With ``several`` threads or processes, these also wait for each other. That is at most the CPU time
        they used.
        """
        self._delayed_s = max(self._delayed_s, delay_s - cpu_s if several else delay_s)

    @property
    def lost_s(self) -> float:
        """Seconds in which the machine kept the run waiting for a core. A run alone on a machine adds
        nothing."""
        return self._start_delay_s + max(self._computing_s, self._delayed_s)

    def is_over(self, now: float, waited: ThreadWait, start_time: float) -> bool:
        """Return whether the limit is exceeded after subtracting the waiting time, which is at least
        ``waited``.

        start_time: that of the first process. Before it, the fork-server waited for a core or a page.
        """
        ready_s = max(waited.seconds, self._ready_s)
        waited_s = ready_s + self._stalled_s
        late_s = self._supervisor_late_s + max(start_time - self._started, 0.0)
        self.deadline = self._started + self._limit_s + min(waited_s + late_s, self._most_s)
        # A run that sleeps again and again waits at each wake-up and would be excused forever. So would one
        # that reads from a disk endlessly or waits for a child of vfork(2). The machine is at fault only if
        # it is crowded.
        computed = waited.preempted or self._computing_s >= self._ready_s / 2 > 0
        crowded = computed and ready_s >= self._limit_s
        self.starved = late_s >= self._most_s or (crowded and waited_s >= self._most_s)
        return now >= self.deadline
