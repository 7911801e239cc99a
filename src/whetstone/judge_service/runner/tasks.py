"""What a runner is asked and answers. Both ends are ours; the codec is that of the judge's workers."""

from __future__ import annotations

from msgspec import Struct


class RunTask(Struct, tag="run", frozen=True):
    """Run a program once.

    ``wall_s`` bounds CPU and wall time alike. ``fetch`` names the files to bring back, each name once.
    """

    language: str
    source: str
    stdin: bytes
    wall_s: float
    memory_bytes: int
    output_bytes: int
    files: list[tuple[str, bytes]] = []
    fetch: list[str] = []


class Step(Struct, frozen=True):
    """A compiler or program as it ended: ``ended`` is a ``sandbox.Ended``, or ``refused`` of a compiler."""

    ended: str
    exit_code: int | None
    signal: int | None
    cpu_s: float
    wall_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes


class Ran(Struct, tag="ran", frozen=True):
    """What happened. ``fault``: it was not run, and that is not the program's doing; ``wrong``: nor ours."""

    compiled: Step | None = None
    run: Step | None = None
    files: list[tuple[str, bytes]] = []
    fault: str = ""
    wrong: str = ""
