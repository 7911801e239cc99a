"""Facts about a finished group that the dataflow uses without decoding it: rewards, lengths, versions,
source; and the rules that decide which groups carry no learning signal.

The group itself crosses the flow as bytes. The replica encodes them once and the trainer decodes them once.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from statistics import fmean, stdev

import msgspec
from msgspec import Struct

from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.loss_free import REJECTED, UNSCORED, loss_free_reasons
from whetstone.core.sample import Group, Sample

# All rewards are equal, so every advantage would be zero.
ZERO_VARIANCE = "zero_variance"
# More tokens of a reply are a defect of a replica; their sums must fit into the integers of the log.
MOST_TOKENS = 1 << 32


class GroupFacts(Struct, frozen=True, array_like=True):
    """The lists are in sample order: ``rewards`` (None: no verdict that counts), ``tokens`` (the numbers of
    generated tokens by weight version), and ``without_loss`` (why the sample carries no loss in a batch,
    empty if it does; see ``loss_free_reasons``).

    ``difficulty`` comes from the problem's data; empty if unknown.
    """

    problem: str
    source: str
    difficulty: str
    rewards: list[float | None]
    tokens: list[dict[int, int]]
    without_loss: list[str]

    def __post_init__(self) -> None:
        if not self.rewards or not len(self.rewards) == len(self.tokens) == len(self.without_loss):
            raise ValueError(
                f"{len(self.rewards)} rewards, {len(self.tokens)} replies, {len(self.without_loss)} reasons"
            )
        if not all(math.isfinite(reward) for reward in self.scored()):
            raise ValueError("a reward is not finite")
        counts = [(version, count) for reply in self.tokens for version, count in reply.items()]
        if any(version < 0 or not 1 <= count <= MOST_TOKENS for version, count in counts):
            raise ValueError(f"a version is below 0, or a number of tokens not in 1 to {MOST_TOKENS}")

    @property
    def lengths(self) -> list[int]:
        """The numbers of generated tokens of the samples."""
        return [sum(reply.values()) for reply in self.tokens]

    @property
    def generated(self) -> int:
        """The number of generated tokens."""
        return sum(self.lengths)

    @property
    def oldest(self) -> int | None:
        """The lowest weight version of a generated token; None if there are no tokens."""
        return min((version for reply in self.tokens for version in reply), default=None)

    @property
    def newest(self) -> int | None:
        """The highest weight version of a generated token; None if there are no tokens."""
        return max((version for reply in self.tokens for version in reply), default=None)

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


def facts_of(group: Group, spec: Algorithm, difficulty: str = "") -> GroupFacts:
    """Return the facts of a group that the algorithm ``spec`` trains on."""
    return GroupFacts(
        group.problem_id,
        str(group.meta.get("source") or ""),
        difficulty,
        [sample.reward for sample in group.samples],
        [tokens_by_version(sample) for sample in group.samples],
        loss_free_reasons(group, spec),
    )


def tokens_by_version(sample: Sample) -> dict[int, int]:
    """Return the numbers of generated tokens of a sample by weight version."""
    return dict(Counter(compress(sample.versions, sample.written())))


def encode_group(group: Group) -> bytes:
    """Encode a group for transport."""
    return msgspec.msgpack.encode(group)


def decode_group(data: bytes) -> Group:
    """Decode the bytes of ``encode_group``. Raises msgspec.MsgspecError for any other bytes."""
    return msgspec.msgpack.decode(data, type=Group)


def checksum(data: bytes | memoryview) -> int:
    """Return the CRC-32 of the bytes of a group or a message."""
    return zlib.crc32(data)


def drop_reason(group: Group, spec: Algorithm) -> str | None:
    """Return why ``spec`` does not train on a group, or None if it does."""
    rewards = [spec.trained_reward(sample) for sample in group.samples]
    if spec.cross_entropy:
        # A cross-entropy has no baseline, so one reply is enough.
        return REJECTED if all(reward is None for reward in rewards) else None
    return drop_reason_of_rewards(rewards, drop_zero_variance=spec.drop_zero_variance)


def drop_reason_of_rewards(rewards: Sequence[float | None], *, drop_zero_variance: bool) -> str | None:
    """Return the drop reason of a group with these rewards; a reward is None if the sample has none."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return UNSCORED
    if drop_zero_variance and min(scored) == max(scored):
        return ZERO_VARIANCE
    return None
