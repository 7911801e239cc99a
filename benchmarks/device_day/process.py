"""Runs a command with a time limit, and says how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from whetstone.engine.served.process import bound_command

# The most characters of a failed process's last lines that are kept.
_LAST_WORDS = 1500


class Outcome(NamedTuple):
    """How a process ended; ``reason`` is empty if it succeeded."""

    seconds: float
    reason: str


def run_limited(command: Sequence[str], limit_s: float, log: Path) -> Outcome:
    """Run a command with its output appended to ``log``, and end it and its processes after ``limit_s``."""
    began = time.monotonic()
    with log.open("ab") as file:
        start = file.tell()
        # However this process ends, the other must not keep the device.
        bound = bound_command(command)
        process = subprocess.Popen(
            bound,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # So that the processes that it starts can be ended with it.
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
            reason = _reason(code, log, start)
        except subprocess.TimeoutExpired:
            reason = f"stopped after its limit of {limit_s:.0f} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Outcome(time.monotonic() - began, reason)


def _reason(code: int, log: Path, start: int) -> str:
    if code == 0:
        return ""
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", as the kernel does when the machine's memory is full" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    with log.open("rb") as file:
        file.seek(start)
        said = file.read().decode(errors="replace")[-_LAST_WORDS:].strip()
    return f"exit status {code}: {said.splitlines()[-1] if said else 'no output'}"
