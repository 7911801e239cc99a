"""Where versions are had from: what a source promises, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from whetstone.errors import UserError
from whetstone.weights.codec import Bytes
from whetstone.weights.manifest import Manifest, Mark

PartKey = tuple[int, int]
"""A shard of a manifest, and a part of that."""

Take = Callable[[PartKey, Bytes], None]
"""Gets each part as it arrives, from several threads at once. An exception ends the fetching."""


class Gone(UserError):
    """A version that is no longer kept: ask again what there is."""


class Unreachable(UserError):
    """A publisher that does not answer, is silent, or is not who it should be."""


class Denied(Unreachable):
    """Who answers is no publisher of weights, or one that wants another token."""


class Source(Protocol):
    """Versions that somebody else publishes. One thread at a time uses it."""

    def plan(self, have: Mark | None, wait_s: float = 0.0) -> list[Manifest]:
        """How to come from the version ``have`` to the newest one: deltas in order, or a full copy first.

        Nothing when there is no newer one within ``wait_s``. Raises Unreachable, and Damaged for what
        is no manifest.
        """
        ...

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], take: Take) -> None:
        """Get parts of a version, in any order, and hand each over. Parts that arrived stay so after a cut.

        Raises Gone, Unreachable, and what ``take`` raises.
        """
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...
