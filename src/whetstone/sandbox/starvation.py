"""How long a process was ready to run and had to wait for a core: the machine's fault, not the program's."""

from __future__ import annotations

import os


def waited_for_core_s(pid: int) -> float:
    """Seconds in a run queue, of the thread that waited longest; 0 where the kernel does not say.

    From /proc/PID/task/TID/schedstat (CPU time, run queue delay, slices; nanoseconds).
    """
    longest = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                longest = max(longest, int(file.read().split()[1]))
    except (OSError, IndexError, ValueError):
        pass  # it ended meanwhile, or the kernel keeps no such figures
    return longest / 1e9
