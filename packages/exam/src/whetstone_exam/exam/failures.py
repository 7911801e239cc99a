"""Failures of the machine, which an exam causes in the process of a grader.

Each of them is a failure of the judge: a right program that is judged meanwhile has no verdict. It is not
wrong. This module imports the standard library only, because it runs in the interpreter of the grader.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time

NO_DESCRIPTORS = "no descriptors"
DISK_FULL = "disk full"
CHILDREN_KILLED = "children killed"

FAILURES = {
    NO_DESCRIPTORS: "the grader's process can open no further file, pipe or socket",
    DISK_FULL: "no process can write to a file, as on a full disk",
    CHILDREN_KILLED: "the grader's own child processes are killed, as the kernel does if memory is short",
}
"""The failures, with what happens."""

_KILL_EVERY_S = 0.005


def cause_failure(name: str) -> None:
    """Cause a failure in this process, until it ends."""
    if name == NO_DESCRIPTORS:
        highest = max(int(number) for number in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
    elif name == DISK_FULL:
        # A write beyond the limit raises OSError (EFBIG), because Python ignores the signal.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    else:
        threading.Thread(target=_kill_children, name="exam-failure", daemon=True).start()


def _kill_children() -> None:
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_KILL_EVERY_S)


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found
