"""What a router and the judges of its nodes tell each other, packed by the codec of a judge and its workers.

A problem travels once to a node and is named by the SHA-256 of its packed bytes from then on.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from whetstone.judge_service.runner.tasks import Ran, RunTask
from whetstone.problem import Program
from whetstone.verdict import Judgement


class NodeSetup(Struct, frozen=True):
    """What a node's judge is started with; ``settings`` are those of ``Judge``."""

    workers: int
    settings: dict[str, Any]
    most_known_bytes: int


class Fit(Struct, tag="fit", frozen=True):
    """A node's judge serves. ``languages``: those that its machine has in this tier."""

    version: str
    isolation: str
    environment: str
    languages: list[str]
    pids: list[int]


class Unfit(Struct, tag="unfit", frozen=True):
    """A node cannot judge as it was asked to."""

    reason: str


class JudgeJob(Struct, tag="judge", frozen=True):
    """Judge a program for the problem of this hash."""

    problem_sha256: str
    program: Program
    options: dict[str, Any]


class RunJob(Struct, tag="run", frozen=True):
    """Run a program, and say what happened."""

    task: RunTask


class Given(Struct, frozen=True):
    """A packed job, under a number of the router.

    ``left_s``: seconds until its deadline; ``queued_s``: seconds that it has waited for a node.
    """

    number: int
    left_s: float | None
    queued_s: float
    job: bytes


class Batch(Struct, frozen=True):
    """What a node gets at once: packed problems, jobs, and numbers of jobs that are not wanted any more."""

    problems: list[bytes]
    jobs: list[Given]
    stop: list[int]


class Judged(Struct, tag="judged", frozen=True):
    """A job's judgement."""

    judgement: Judgement


class HasRun(Struct, tag="has_run", frozen=True):
    """What a program did that was run, not judged."""

    ran: Ran


class Wrong(Struct, tag="wrong", frozen=True):
    """There is something wrong with the job itself."""

    message: str


class Unknown(Struct, tag="unknown", frozen=True):
    """The job's problem is not held here any more: it made room for others."""


class Failed(Struct, tag="failed", frozen=True):
    """The job could not be done, which is not its own fault."""

    reason: str


Outcome = Judged | HasRun | Wrong | Unknown | Failed


class Results(Struct, frozen=True):
    """Packed outcomes, each under its job's number."""

    outcomes: list[tuple[int, bytes]]


class NodeState(Struct, frozen=True):
    """One node as the router sees it.

    ``state``: ``ready``, ``starting``, or ``left_out``, with the reason. ``under_way`` are the programs that
    it has, ``judged`` those that it had, ``losses`` how often it was lost.
    """

    name: str
    state: str
    workers: int
    under_way: int = 0
    judged: int = 0
    losses: int = 0
    isolation: str = ""
    reason: str = ""
