"""Starts, monitors and stops a model server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2

from whetstone.core.closing import Closing
from whetstone.core.errors import UserError

_POLL_S = 0.2
_END_S = 30.0
# Seconds that a server's workers may take to end after it, and after they got a signal.
_WORKERS_END_S = 10.0
_GROUP_POLL_S = 0.05
# The lines of the server's log in an error message.
_LOG_LINES = 15


# The kernel sends the signal (PR_SET_PDEATHSIG), however the parent ended. The setting survives ``exec``.
_END_WITH_PARENT = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def bound_command(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command``, and ends with this process."""
    return [sys.executable, "-S", "-E", "-c", _END_WITH_PARENT, str(os.getpid()), *command]


class ServerProcess(Closing):
    """A server on loopback. It ends with this process, however this process ends.

    command: the command to run; its output goes to ``log``. environment: added to this process's; None
    removes a variable. Raises UserError if it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str | None], log: Path) -> None:
        self._log = log
        self._command = " ".join(command)
        whole = {**os.environ, **environment}
        with log.open("wb") as output:
            try:
                self._process = subprocess.Popen(
                    bound_command(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={name: value for name, value in whole.items() if value is not None},
                    # A separate process group: Ctrl-C only reaches this process, which then stops the server.
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(f"{self._command}: {error}") from None

    def wait_until_ready(self, health: str, limit_s: float) -> None:
        """Wait until the address ``health`` answers 200. Raises UserError with the end of the server's
        log."""
        deadline = time.monotonic() + limit_s
        with httpx2.Client(timeout=5.0, trust_env=False) as client:
            while True:
                self.check()
                try:
                    if client.get(health).is_success:
                        return
                except httpx2.HTTPError:
                    # The server is not ready yet.
                    pass
                if time.monotonic() > deadline:
                    said = self._log_tail()
                    raise UserError(
                        f"the server did not answer within {limit_s:.0f} s (`engine.options.start_s`); last "
                        f"output:\n{said}\nstarted as: {self._command}"
                    )
                time.sleep(_POLL_S)

    def check(self) -> None:
        """Raise UserError with the end of its log if the server has ended."""
        code = self._process.poll()
        if code is not None:
            raise UserError(
                f"the server ended with code {code}; it said last:\n{self._log_tail()}\n"
                f"started as: {self._command}"
            )

    def close(self) -> None:
        """Stop the server and its child processes, with time to remove shared memory.

        The server gets a signal first and stops its workers itself. Remaining processes get a signal, then
        are killed.
        """
        group = self._process.pid
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for ending in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _WORKERS_END_S
            while (alive := _group_alive(group)) and time.monotonic() < deadline:
                time.sleep(_GROUP_POLL_S)
            if not alive:
                break
            with suppress(ProcessLookupError):
                # The group id stays valid while any of its processes lives.
                os.killpg(group, ending)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _log_tail(self) -> str:
        text = self._log.read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines()[-_LOG_LINES:])


def _group_alive(group: int) -> bool:
    """Return whether any process of a group runs. Zombies do not count, because they may never be reaped."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The process name, in parentheses, may contain any character.
            state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
