"""The process of a role, wherever it runs: its output, its signals and its exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_READ_BYTES = 1 << 16


class RoleProcess(Protocol):
    """A started role."""

    async def read(self) -> bytes:
        """Return the next output as soon as there is some; empty at the end."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal. Has no effect after the process has ended."""
        ...

    async def wait(self) -> int:
        """Wait for the exit status; negative for the signal that ended the process."""
        ...


class LocalProcess:
    """A process on this machine."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """See RoleProcess."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(_READ_BYTES)

    def send_signal(self, number: signal.Signals) -> None:
        """See RoleProcess."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """See RoleProcess."""
        return await self._process.wait()


def role_command(role: str, file: Path, words: Sequence[str]) -> list[str]:
    """Return the command that starts a role which ends with this process."""
    own = [sys.executable, "-m", "whetstone", "role", role, str(file)]
    return [*own, *words, "--parent", str(os.getpid())]


async def start_local(
    words: Sequence[str], *, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> LocalProcess:
    """Start a command on this machine in its own session, so that Ctrl-C in the terminal does not reach it.

    variables: added to the environment. folder: the working directory; None: that of this process.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        env={**os.environ, **(variables or {})},
        cwd=folder,
    )
    return LocalProcess(process)
