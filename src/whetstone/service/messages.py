"""Messages of the judge's own endpoints. The schemas of the OpenAPI page come from these types.

Requests are JSON, or (content type ``PACKED``) the codec between a judge and its workers. It also encodes
values that JSON does not have: NaN, keys that are not strings, and lone surrogates.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from whetstone.core.problem import Problem, Program

PACKED = "application/vnd.whetstone.packed"
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class JudgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A program and its problem, which is included or named by its hash if the server has it.

    ``program`` is null if the reply had none. ``options`` are those of ``JudgeOptions``, by name. Their
    ``deadline_s`` bounds the time from the arrival of the request to its response.
    """

    program: Program | None = None
    problem: Problem | None = None
    problem_sha256: Sha256 | None = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if (self.problem is None) == (self.problem_sha256 is None):
            raise ValueError("give exactly one of `problem` and `problem_sha256`")


class ProblemReply(Struct, frozen=True):
    """The hash that names a problem in later requests, until the server drops the problem."""

    problem_sha256: str


class Info(Struct, frozen=True):
    """Facts about a server. ``languages`` can run there; ``window`` is the number of programs in flight that
    keep it busy."""

    version: str
    isolation: str
    environment: str
    workers: int
    window: int
    languages: list[str]
    most_body_bytes: int
    most_cases: int
    most_memory_mb: float | None
    longest_deadline_s: float


class NodeState(Struct, frozen=True):
    """One node of the cluster.

    state: ``ready``; or, with a ``reason``, ``starting``, ``left_out`` or ``lost``. losses: how often its
    server
    was lost. judged: the programs that its present server has finished.
    """

    name: str
    state: str
    workers: int
    in_flight: int = 0
    judged: int = 0
    losses: int = 0
    isolation: str = ""
    reason: str = ""
