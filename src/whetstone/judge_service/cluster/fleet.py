"""What a router needs of a cluster: which machines there are, and a judge started on one of them."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class NodeLost(Exception):
    """A node's judge is gone, or does not answer. The message says why, as far as that is known."""


class Machine(Struct, frozen=True):
    """A machine of the cluster that is there now: ``id`` is never used again, ``name`` is for people."""

    id: str
    name: str
    cores: int


class Post(Protocol):
    """A judge on a machine: a ``NodeJudge``, called from afar."""

    async def call(self, method: str, data: bytes | None, silence_s: float) -> Any:
        """What ``NodeJudge`` answers. Raises NodeLost, also when it says nothing for ``silence_s``."""
        ...

    def end(self) -> None:
        """End it, whatever it does. Blocks for a moment."""
        ...


class Fleet(Protocol):
    """A cluster. Its methods block for a moment."""

    def machines(self) -> list[Machine]:
        """Those that are there now. Raises NodeLost where that cannot be said."""
        ...

    def start(self, machine: Machine, workers: int, setup: bytes) -> Post:
        """Begin a ``NodeJudge`` there, which takes ``workers`` of its cores. Raises NodeLost."""
        ...

    def close(self) -> None:
        """Let go of the cluster, and of all that was started on it."""
        ...
