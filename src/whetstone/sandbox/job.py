"""The nouns of the sandbox: what to run, within which limits, and what happened.

Nothing here knows of tests, expected outputs or rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

MOST_STARVED = 5.0
"""How many times its wall clock limit a run may wait for a core, or for us, before it is ended."""


class Tier(IntEnum):
    """How strictly a machine lets us isolate, weakest first.

    RESTRICTED: seccomp, Landlock and rlimits, where namespaces are refused (many containers).
    USERNS: all namespaces, through an unprivileged user namespace.
    ROOT: all namespaces, another uid, and no capabilities.
    """

    RESTRICTED = 1
    USERNS = 2
    ROOT = 3

    @property
    def label(self) -> str:
        """The tier's name in recipes, judgements and on the command line."""
        return self.name.lower()


@dataclass(frozen=True)
class RunLimits:
    """Bounds of one run, on all its processes and threads together, also those that it left behind.

    CPU time decides; wall time is a generous backstop. Memory is resident memory. Time in which the run was
    ready but had no core to run on does not count as wall time, up to five times the limit; a run that goes
    on computing is STARVED then.
    """

    cpu_s: float
    memory_bytes: int
    output_bytes: int
    wall_s: float | None = None
    """None: 10 s more than ten times ``cpu_s``."""


@dataclass(frozen=True)
class Job:
    """One run of a harness over a payload, in a fresh fork.

    ``harness`` names one of the harness files the sandbox was started with. It is called as
    ``main(payload: bytes, result_fd: int, link_fd: int | None)`` inside the locked-down child.
    ``stdin`` is what the program reads. ``link`` is a file descriptor of the caller (one end of a
    socket pair) that the child gets, or None; the sandbox closes the caller's copy once the child
    has it.
    """

    harness: str
    payload: bytes
    limits: RunLimits
    stdin: bytes = b""
    link: int | None = None
    result_extra: int = 0
    """Bytes that the result may hold beyond the output limit: the harness's own, not the program's."""


class Ended(StrEnum):
    """Why a run ended."""

    EXITED = "exited"
    SIGNALED = "signaled"
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    PROCESS_LIMIT = "process_limit"
    STARVED = "starved"
    """Ended by us: the machine gave it so little of a core that nothing can be said of it."""
    KILLED = "killed"
    """Ended by us: its partner's run was over, or the caller wanted no more of it."""


@dataclass(frozen=True)
class RunResult:
    """What happened. ``stdout`` is kept up to the output limit, ``stderr`` to its last 64 KiB.

    ``result`` is what the harness wrote to its result descriptor: bytes from inside the child,
    which the program could have written as well. It is never evidence by itself. ``waited_s`` are the
    seconds of ``wall_s`` in which the run was ready and had no core; 0.0 for a run that was over at once.
    """

    ended: Ended
    exit_code: int | None
    signal: int | None
    cpu_s: float
    wall_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes
    result: bytes
    waited_s: float = 0.0


class SandboxFault(Exception):
    """The sandbox itself failed (a fork-server died, a set-up step was refused). Never a verdict."""


class Stopped(Exception):
    """The sandbox's ``stop_fd`` became readable: what ran was ended, and the fork-servers live on."""
