"""The process of a role, wherever it runs: what it says, what it is told, how it ended."""

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

_AT_ONCE = 1 << 16


class Started(Protocol):
    """A role that was started."""

    async def read(self) -> bytes:
        """What it has said since the last call, as soon as there is anything; empty once it says no more."""
        ...

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal. One that has ended hears none."""
        ...

    async def wait(self) -> int:
        """Its status, once it has ended; less than 0 for the signal that ended it."""
        ...


class Local:
    """A process of this machine."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """See Started."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(_AT_ONCE)

    def tell(self, number: signal.Signals) -> None:
        """See Started."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """See Started."""
        return await self._process.wait()


def role_command(role: str, file: Path, words: Sequence[str]) -> list[str]:
    """What starts a role that lives no longer than this process."""
    own = [sys.executable, "-m", "whetstone", "role", role, str(file)]
    return [*own, *words, "--parent", str(os.getpid())]


async def start_local(
    words: Sequence[str], *, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> Local:
    """Start a command on this machine, in a session of its own, so that a terminal's Ctrl-C is not for it.

    variables: beside those of the environment. folder: where it works; None: where this process does.
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
    return Local(process)
