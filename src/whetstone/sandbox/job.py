"""The nouns of the sandbox: what to run, within which limits, and what happened.

This module knows nothing about tests, expected outputs or rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

# Factor on the wall time limit for waiting for a core or for the supervisor, before a run is ended.
MOST_STARVED = 5.0


class Tier(IntEnum):
    """Strength of the isolation, weakest first.

    RESTRICTED: seccomp, Landlock and rlimits, where namespaces are forbidden (many containers). USERNS: all
    namespaces, through an unprivileged user namespace. ROOT: all namespaces, another uid, and no
    capabilities.
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
    """Limits of one run, over all its processes and threads together, including orphaned ones.

    CPU time decides; wall time is a generous backstop. Memory is resident memory. Time in which the run was
    ready but had no core does not count as wall time, up to five times the limit. A run that still computes
    then is STARVED.
    """

    cpu_s: float
    memory_bytes: int
    output_bytes: int
    wall_s: float | None = None
    """None: ten times ``cpu_s`` plus 10 s."""


@dataclass(frozen=True)
class SandboxJob:
    """One run of a harness over a payload, in a fresh fork.

    ``harness`` names one of the harness files of the sandbox. It is called as ``main(payload: bytes,
    result_fd: int, link_fd: int | None)`` inside the isolated child. ``stdin`` is the program's standard
    input. ``link`` is a file descriptor of the caller (one end of a socket pair) for the child, or None. The
    sandbox closes the caller's copy once the child has it.
    """

    harness: str
    payload: bytes
    limits: RunLimits
    stdin: bytes = b""
    link: int | None = None
    result_extra: int = 0
    """Bytes that the result may have beyond the output limit, for the harness rather than the program."""


class EndReason(StrEnum):
    """Why a run ended."""

    EXITED = "exited"
    SIGNALED = "signaled"
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    PROCESS_LIMIT = "process_limit"
    STARVED = "starved"
    """Ended by the supervisor: it got too little of a core for any conclusion."""
    KILLED = "killed"
    """Ended by the supervisor: its partner's run was over, or the caller cancelled it."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run. ``stdout`` is kept up to the output limit, ``stderr`` to its last 64 KiB.

    ``result`` is what the harness wrote to its result descriptor. The program could have written these bytes
    too, so they are never evidence by themselves. ``waited_s`` are the seconds of ``wall_s`` in which the run
    was ready and had no core; 0.0 for a run that was over at once.
    """

    ended: EndReason
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
    """The sandbox itself failed: a fork-server died, or a set-up step was refused. Never a verdict."""


class SandboxStopped(Exception):
    """The sandbox's ``stop_fd`` became readable: the current run ended, and the fork-servers live on."""
