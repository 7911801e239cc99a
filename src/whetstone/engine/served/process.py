"""A server that we start: until it answers, while it works, and its end."""

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
from types import TracebackType
from typing import Self

import httpx2

from whetstone.engine.served import leash
from whetstone.errors import UserError

_LOOK_EVERY_S = 0.2
_END_S = 30.0
_WORKERS_END_S = 10.0
"""How long the workers of a server may take to end after it, and after they were told to."""
_GROUP_EVERY_S = 0.05
_SAID = 15  # lines of its log, in an error


class ServerProcess:
    """A server on loopback. It ends with this process, however this process ends.

    command: what to run; what it writes goes to ``log``. Raises UserError when it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._command = " ".join(command)
        with log.open("wb") as output:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-S", "-E", leash.__file__, str(os.getpid()), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **environment},
                    # A group of its own: Ctrl-C is for us, who then end it in good order.
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(f"{self._command}: {error}") from None

    def wait_until_ready(self, health: str, limit_s: float) -> None:
        """Wait until the address ``health`` answers 200. Raises UserError with the server's last words."""
        deadline = time.monotonic() + limit_s
        with httpx2.Client(timeout=5.0) as client:
            while True:
                self.check()
                try:
                    if client.get(health).is_success:
                        return
                except httpx2.HTTPError:
                    pass  # not yet
                if time.monotonic() > deadline:
                    said = self._last_words()
                    raise UserError(
                        f"the server did not answer within {limit_s:.0f} s (`engine.options.start_s`); it "
                        f"said last:\n{said}\nstarted as: {self._command}"
                    )
                time.sleep(_LOOK_EVERY_S)

    def check(self) -> None:
        """Raise UserError with its last words if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise UserError(
                f"the server ended with code {code}; it said last:\n{self._last_words()}\n"
                f"started as: {self._command}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and what it started, which has time to remove its shared memory.

        The server is told first, and ends its workers itself. What lives on after it is told, then killed.
        """
        group = self._process.pid
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for ending in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _WORKERS_END_S
            while (alive := _lives(group)) and time.monotonic() < deadline:
                time.sleep(_GROUP_EVERY_S)
            if not alive:
                break
            with suppress(ProcessLookupError):
                # The group keeps its number while any of it lives.
                os.killpg(group, ending)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines()[-_SAID:])


def _lives(group: int) -> bool:
    """Whether any process of a group runs. Zombies do not: nobody may be there to wait for them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything.
            state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
