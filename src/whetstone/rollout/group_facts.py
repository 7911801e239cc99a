"""Facts about a finished group that the dataflow uses without decoding it: rewards, lengths, versions,
source.

The group itself crosses the flow as bytes. The replica encodes them once and the trainer decodes them once.
"""

from __future__ import annotations

import math
import zlib
from statistics import fmean, stdev

import msgspec
from msgspec import Struct

from whetstone.core.sample import Group


class GroupFacts(Struct, frozen=True, array_like=True):
    """``rewards`` (None: no verdict that counts) and ``lengths`` in tokens are in sample order.

    ``oldest`` and ``newest`` are the weight versions of its tokens, None if it has no tokens. ``difficulty``
    comes from the problem's data; empty if unknown.
    """

    problem: str
    source: str
    difficulty: str
    rewards: list[float | None]
    lengths: list[int]
    oldest: int | None
    newest: int | None

    def __post_init__(self) -> None:
        if not self.rewards or len(self.rewards) != len(self.lengths):
            raise ValueError(f"{len(self.rewards)} rewards, {len(self.lengths)} lengths")
        if (self.oldest is None) != (self.newest is None) or (self.oldest or 0) > (self.newest or 0):
            raise ValueError(f"versions from {self.oldest} to {self.newest}")
        if not all(math.isfinite(reward) for reward in self.scored()):
            raise ValueError("a reward is not finite")
        if (self.oldest or 0) < 0 or min(self.lengths) < 0:
            raise ValueError("a version or a length is below 0")

    def scored(self) -> list[float]:
        """Return the rewards that are not None."""
        return [reward for reward in self.rewards if reward is not None]

    def statistics(self) -> tuple[float | None, float | None]:
        """Return mean and unbiased standard deviation of the rewards; None if there are too few rewards."""
        scored = self.scored()
        return (fmean(scored) if scored else None), (stdev(scored) if len(scored) > 1 else None)


class LogLocation(Struct, frozen=True, array_like=True):
    """The location of a group's bytes: file number of the log, offset, size, and CRC-32."""

    file: int
    offset: int
    size: int
    crc: int


def facts_of(group: Group, difficulty: str = "") -> GroupFacts:
    """Return the facts of a group."""
    versions = [version for sample in group.samples for version in sample.versions]
    return GroupFacts(
        group.problem_id,
        str(group.meta.get("source") or ""),
        difficulty,
        [sample.reward for sample in group.samples],
        [sample.length for sample in group.samples],
        min(versions, default=None),
        max(versions, default=None),
    )


def encode_group(group: Group) -> bytes:
    """Encode a group for transport."""
    return msgspec.msgpack.encode(group)


def decode_group(data: bytes) -> Group:
    """Decode the bytes of ``encode_group``. Raises msgspec.MsgspecError for any other bytes."""
    return msgspec.msgpack.decode(data, type=Group)


def checksum(data: bytes) -> int:
    """Return the CRC-32 of the bytes of a group."""
    return zlib.crc32(data)
