"""Runs the command of an agent, and ends all processes that it started; see ``agent_keeper``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

_KEEPER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("agent_keeper.py")))
_MOST_BYTES = 1 << 20
_ERROR_BYTES = 2000
_PART_BYTES = 64 << 10
# Seconds for the rest of the output. A process that could not be ended may keep the pipe open.
_REST_S = 5.0


class AgentFailed(Exception):
    """The command failed. The message has the end of its standard error."""


async def run_agent(command: Sequence[str], text: str, environment: Mapping[str, str]) -> str:
    """Run a command with ``text`` as its standard input, and return its standard output.

    All processes that it started are killed at the end, and when the call is cancelled. Raises AgentFailed
    for an exit code other than 0 and for more than 1 MiB of output.
    """
    out, errors = bytearray(), bytearray()
    readers: list[asyncio.Task[None]] = []
    try:
        async with _started(command, text, environment) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            # More than the limit is read too, so that the command does not wait for its reader.
            readers.append(asyncio.create_task(_read(process.stdout, out, _MOST_BYTES + 1, end=False)))
            readers.append(asyncio.create_task(_read(process.stderr, errors, _ERROR_BYTES, end=True)))
            await _wait_for_exit(process.pid)
        await asyncio.wait(readers, timeout=_REST_S)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip()
        raise AgentFailed(f"{command[0]} ended with code {process.returncode}: {said}")
    if len(out) > _MOST_BYTES:
        raise AgentFailed(f"{command[0]} printed more than {_MOST_BYTES >> 20} MiB to standard output")
    return out.decode(errors="replace")


@asynccontextmanager
async def _started(
    command: Sequence[str], text: str, environment: Mapping[str, str]
) -> AsyncGenerator[subprocess.Popen[bytes]]:
    """Return the context of a running keeper. At its end no process of the command is left."""
    process, held = _start(command, text, environment)
    try:
        yield process
    finally:
        with suppress(BrokenPipeError):  # it has ended
            os.write(held, b"\0")  # another process may have a copy of the pipe, so it may stay open
        os.close(held)
        await _wait_for_exit(process.pid)
        process.wait()


def _start(
    command: Sequence[str], text: str, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Return the keeper of a command, and the end of the pipe that keeps it running."""
    lifeline, held = os.pipe()
    try:
        with tempfile.TemporaryFile() as read:
            read.write(text.encode(errors="replace"))
            read.seek(0)
            process = subprocess.Popen(
                [*_KEEPER, str(lifeline), *command],
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                pass_fds=[lifeline],
            )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(lifeline)
    return process, held


async def _wait_for_exit(pid: int) -> None:
    """Wait until a child has ended, and leave it unreaped."""
    loop, ended, descriptor = asyncio.get_running_loop(), asyncio.Event(), os.pidfd_open(pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _read(pipe: IO[bytes], into: bytearray, most: int, *, end: bool) -> None:
    """Read a pipe to its end, and keep the first or, with ``end``, the last ``most`` bytes."""
    reader = asyncio.StreamReader(limit=_PART_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while part := await reader.read(_PART_BYTES):
            into += part if end else part[: most - len(into)]
            if end:
                del into[:-most]
    finally:
        transport.close()
