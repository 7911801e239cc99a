"""What the dataflow knows of a finished group without reading it: rewards, lengths, versions, where from.

A group itself crosses the flow as bytes that are made once, by who sampled it, and read once, by who trains
on it.
"""

from __future__ import annotations

import math
import zlib
from statistics import fmean, stdev

import msgspec
from msgspec import Struct

from whetstone.sample import Group


class Facts(Struct, frozen=True, array_like=True):
    """``rewards`` (None: no verdict that counts) and ``lengths`` in tokens are in sample order.

    ``oldest`` and ``newest`` are the weight versions of its tokens, None where it has none. ``difficulty`` is
    what the problem's data say, empty where they say nothing.
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
        """The rewards that exist."""
        return [reward for reward in self.rewards if reward is not None]

    def statistics(self) -> tuple[float | None, float | None]:
        """Mean and unbiased deviation of the rewards; None of too few."""
        scored = self.scored()
        return (fmean(scored) if scored else None), (stdev(scored) if len(scored) > 1 else None)


class Place(Struct, frozen=True, array_like=True):
    """Where the bytes of a group lie: which file of the log, where in it, how many, and their CRC-32."""

    file: int
    offset: int
    size: int
    crc: int


def facts_of(group: Group, difficulty: str = "") -> Facts:
    """The facts of a group."""
    versions = [version for sample in group.samples for version in sample.versions]
    return Facts(
        group.problem_id,
        str(group.meta.get("source") or ""),
        difficulty,
        [sample.reward for sample in group.samples],
        [sample.length for sample in group.samples],
        min(versions, default=None),
        max(versions, default=None),
    )


def packed(group: Group) -> bytes:
    """A group as the bytes that travel."""
    return msgspec.msgpack.encode(group)


def unpacked(data: bytes) -> Group:
    """The group of ``packed``. Raises msgspec.MsgspecError for anything else."""
    return msgspec.msgpack.decode(data, type=Group)


def checksum(data: bytes) -> int:
    """The CRC-32 of the bytes of a group."""
    return zlib.crc32(data)
