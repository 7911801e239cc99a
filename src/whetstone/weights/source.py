"""The interface of a source of versions, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from whetstone.core.errors import UserError
from whetstone.weights.manifest import Manifest, VersionId
from whetstone.weights.streams import Bytes

PartKey = tuple[int, int]
"""A shard index of a manifest, and a part index within the shard."""

OnPart = Callable[[PartKey, Bytes], None]
"""Called with each part as it arrives, possibly from several threads. An exception stops the transfer."""


class VersionEvicted(UserError):
    """A version that the publisher no longer has: request a new plan."""


class PublisherUnreachable(UserError):
    """A publisher that does not answer, is silent, or cannot be authenticated."""


class PublisherDenied(PublisherUnreachable):
    """The other side is no publisher of weights, or requires another token."""


class WeightSource(Protocol):
    """A source of published versions. Use it from one thread at a time."""

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        """Return the steps from the version ``have`` to the newest one: deltas in order, or a full copy
        first.

        Empty if there is no newer version within ``wait_s``. Raises PublisherUnreachable, CorruptData
        for an invalid manifest, and FormatMismatch.
        """
        ...

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], on_part: OnPart) -> None:
        """Fetch parts of a version in any order, and pass each to ``on_part``.

        Parts that arrived before an interruption are not fetched again. Raises VersionEvicted,
        PublisherUnreachable, and errors of ``on_part``.
        """
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...
