"""Runs a command until it ends or its caller lets go, and then ends all processes that it started.

The caller runs this file as a script with the standard library only. The first argument is a descriptor whose
other end the caller holds; the others are the command. Orphans of the command become children of this
process, also those that left its process group or session.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
# Exit codes of shells: a command that cannot be started, and one that a signal ended.
_NOT_STARTED, _SIGNALED = 127, 128
# A process that starts the next one and exits can be faster than its end. After so many seconds it is left.
_LONGEST_S = 5.0
_PAUSE_S = 0.002


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    lifeline, command = int(arguments[0]), arguments[1:]
    os.set_inheritable(lifeline, False)
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_STARTED
    ended = os.pidfd_open(process.pid)
    select.select([lifeline, ended], [], [])
    has_ended = bool(select.select([ended], [], [], 0)[0])
    code = process.wait() if has_ended else -signal.SIGKILL
    _end_children()
    return code if code >= 0 else _SIGNALED - code


def _end_children() -> None:
    """Kill the children, and those that they leave to this process, until there are none."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still that of a child
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_PAUSE_S)


def _children() -> list[int]:
    own, found = str(os.getpid()), list[int]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = file.read().rpartition(")")[2].split()[1]
            except (OSError, IndexError):
                continue  # it has ended
            if parent == own:
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
