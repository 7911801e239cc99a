"""One process of an examined function, and the pipes to it, from outside.

The function may run programs in that process, so everything that comes from it is data. Each request has a
random number, which its answer repeats. Other lines are dropped. They show that a program reached the pipe,
so the process is then not used for further requests. Writing and reading have one deadline together.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import time
from typing import IO, Any, cast

import msgspec

_LONGEST_LINE = 1 << 16
_CHUNK = 1 << 16


class HostProcess:
    """A process that runs ``callable_host``."""

    def __init__(self, process: subprocess.Popen[bytes], read: int) -> None:
        """``process`` reads requests from its standard input. ``read`` is the pipe with its answers."""
        self.version = ""
        self.pid = process.pid
        self.programs = 0
        self._process = process
        self._read, self._write = read, cast("IO[bytes]", process.stdin).fileno()
        self._unread = b""
        self._strayed = False
        self._stopped: bool | None = None
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    @property
    def running(self) -> bool:
        """Whether the process was not stopped."""
        return self._stopped is None

    def has_strayed(self) -> bool:
        """Whether it wrote anything but the answers to its requests."""
        return self._strayed or bool(self._unread) or _ready(self._read, select.POLLIN, time.monotonic())

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Return the answer to a request; None if there is none in time."""
        until, number = time.monotonic() + timeout_s, secrets.token_hex(16)
        if not self._send(msgspec.json.encode({**request, "number": number}) + b"\n", until):
            return None
        while (line := self._next_line(until)) is not None:
            answer = _object(line)
            if answer is not None and answer.get("number") == number:
                return answer
            self._strayed = True
        return None

    def read(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next line, before the first request; None if there is none in time, or no object."""
        line = self._next_line(time.monotonic() + timeout_s)
        return None if line is None else _object(line)

    def _send(self, data: bytes, until: float) -> bool:
        """Write the data. Returns False if the process does not read it in time, or has ended."""
        rest = memoryview(data)
        while rest and _ready(self._write, select.POLLOUT, until):
            try:
                rest = rest[os.write(self._write, rest) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not rest

    def _next_line(self, until: float) -> bytes | None:
        while b"\n" not in self._unread:
            if len(self._unread) > _LONGEST_LINE or not _ready(self._read, select.POLLIN, until):
                return None
            part = os.read(self._read, _CHUNK)
            if not part:
                return None
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def stop(self) -> bool:
        """End the process and all others of its session. Returns whether it had ended by itself."""
        if self._stopped is None:
            # The answer of a dead process ends before it can be waited for.
            try:
                self._process.wait(0.2)
                self._stopped = True
            except subprocess.TimeoutExpired:
                self._stopped = False
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._read)
            cast("IO[bytes]", self._process.stdin).close()
        return self._stopped

    def errors(self) -> str:
        """Return the end of what the process wrote to standard error, after it has ended."""
        stderr = cast("IO[bytes]", self._process.stderr)
        os.set_blocking(stderr.fileno(), False)  # a process that it left may keep the pipe open
        lines = (stderr.read() or b"").decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"


def _ready(fd: int, event: int, until: float) -> bool:
    """Wait until a descriptor is ready or its other end is closed. Returns False if ``until`` is first."""
    poller = select.poll()
    poller.register(fd, event)
    left_s = max(0.0, until - time.monotonic())
    return bool(poller.poll(left_s * 1000.0))


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None if it is none."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
