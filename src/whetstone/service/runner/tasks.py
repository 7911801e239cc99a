"""Messages between the pool and a runner, in the codec of the judge's workers."""

from __future__ import annotations

from msgspec import Struct


class RunTask(Struct, tag="run", frozen=True):
    """Run a program once.

    ``wall_s`` bounds CPU time and wall time. ``fetch`` names the files to return, each once.
    """

    language: str
    source: str
    stdin: bytes
    wall_s: float
    memory_bytes: int
    output_bytes: int
    files: list[tuple[str, bytes]] = []
    fetch: list[str] = []


class CommandResult(Struct, frozen=True):
    """The result of a compiler or program. ``ended`` is a ``sandbox.EndReason``, or ``refused`` if it does
    not compile."""

    ended: str
    exit_code: int | None
    signal: int | None
    cpu_s: float
    wall_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes


class Ran(Struct, tag="ran", frozen=True):
    """The result of a task. ``fault``: the machine could not run it. ``wrong``: the request is invalid."""

    compiled: CommandResult | None = None
    run: CommandResult | None = None
    files: list[tuple[str, bytes]] = []
    fault: str = ""
    wrong: str = ""
