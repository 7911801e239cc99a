"""The messages between a flow and its clients: typed MessagePack, followed by groups as raw bytes.

A frame is the size of its head (32 bits, little endian), the head, and the groups.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from whetstone.rollout.group_facts import GroupFacts, checksum
from whetstone.rollout.protocol import BatchGroup, BatchResponse
from whetstone.rollout.scheduler import Delivery
from whetstone.rollout.state import Offer

FRAME = "application/vnd.whetstone.frame"
PACKED = "application/msgpack"
RUN_HEADER = "x-whetstone-run"
_SIZE = struct.Struct("<I")
T = TypeVar("T")


class MessageError(ValueError):
    """Bytes that are no valid message, or differ from what was sent."""


class GroupPart(Struct, frozen=True, array_like=True):
    """The facts of a group whose bytes follow, with their size and CRC-32."""

    facts: GroupFacts
    size: int
    crc: int


class _DeliveredItem(Struct, frozen=True, array_like=True):
    """A finished prompt."""

    serial: int
    draw: int
    groups: dict[str, GroupPart]


class _DeliveryHead(Struct, frozen=True):
    """The head of a delivery."""

    replica: str
    items: list[_DeliveredItem]
    incarnation: str = ""


class DeliveryReceipts(Struct, frozen=True):
    """The result of each delivery."""

    receipts: list[str]


class LeasesReturned(Struct, frozen=True):
    """Leases that end without a group; see ``LeaseService.give_back``."""

    replica: str
    serials: list[int]
    reason: str
    leaves: bool
    incarnation: str = ""
    progress: dict[int, dict[str, tuple[int, int]]] = {}


class PublishRequest(Struct, frozen=True):
    """A trainer announces weights."""

    model: str
    offer: Offer


class ResumeRequest(Struct, frozen=True):
    """A trainer starts; see ``FlowScheduler.resume``."""

    model: str
    version: int
    drawn: int
    unused: list[int]


class Acknowledgement(Struct, frozen=True):
    """The request was carried out."""

    done: bool = True


class BatchGroupPart(Struct, frozen=True, array_like=True):
    """A group of a batch; see ``protocol.BatchGroup``."""

    draw: int
    reason: str
    part: GroupPart


class BatchHead(Struct, frozen=True):
    """The head of a batch. ``wait_reason`` is set if there is no batch yet."""

    version: int
    groups: list[BatchGroupPart] = []
    lost: dict[str, int] = {}
    drawn: int = 0
    unused: list[int] = []
    oldest: int | None = None
    wait_reason: str = ""


def decode(data: bytes | memoryview, kind: type[T]) -> T:
    """Decode a message. Raises MessageError."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MessageError(str(error)) from None


def head_bytes(head: Struct) -> bytes:
    """Return the beginning of a frame."""
    data = msgspec.msgpack.encode(head)
    return _SIZE.pack(len(data)) + data


def frame(head: Struct, groups: Sequence[bytes]) -> bytes:
    """Return a whole frame."""
    return b"".join((head_bytes(head), *groups))


def delivery_frame(replica: str, deliveries: Sequence[Delivery], incarnation: str = "") -> bytes:
    """Return the frame of a delivery."""
    items = [
        _DeliveredItem(
            each.serial,
            each.draw,
            {
                name: GroupPart(facts, len(data), checksum(data))
                for name, (facts, data) in each.groups.items()
            },
        )
        for each in deliveries
    ]
    return frame(
        _DeliveryHead(replica, items, incarnation),
        [data for each in deliveries for _, data in each.groups.values()],
    )


def read_delivery(data: bytes) -> tuple[str, list[Delivery], str]:
    """Return the replica, its deliveries and its incarnation. Raises MessageError."""
    head, groups = _read_head(data, _DeliveryHead)
    deliveries = [
        Delivery(
            item.serial,
            item.draw,
            {name: (part.facts, _group(groups, part)) for name, part in item.groups.items()},
        )
        for item in head.items
    ]
    if groups.left:
        raise MessageError("there are bytes after the last group")
    return head.replica, deliveries, head.incarnation


def read_batch(data: bytes) -> BatchResponse | str:
    """Return a batch, or why there is none yet. Raises MessageError."""
    head, groups = _read_head(data, BatchHead)
    if head.wait_reason:
        return head.wait_reason
    items = [BatchGroup(t.draw, t.reason, t.part.facts, _group(groups, t.part)) for t in head.groups]
    return BatchResponse(head.version, items, head.lost, head.drawn, head.unused, head.oldest)


def _read_head(data: bytes, kind: type[T]) -> tuple[T, _GroupReader]:
    if len(data) < _SIZE.size:
        raise MessageError("the frame has no head")
    (size,) = _SIZE.unpack_from(data)
    if size > len(data) - _SIZE.size:
        raise MessageError("the head is cut off")
    view = memoryview(data)
    return decode(view[_SIZE.size : _SIZE.size + size], kind), _GroupReader(view[_SIZE.size + size :])


class _GroupReader:
    """Reads groups from the front of ``left``."""

    def __init__(self, left: memoryview) -> None:
        self.left = left

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises MessageError."""
        if not 0 <= size <= len(self.left):
            raise MessageError("a group is cut off")
        data, self.left = bytes(self.left[:size]), self.left[size:]
        return data


def _group(groups: _GroupReader, part: GroupPart) -> bytes:
    data = groups.read(part.size)
    if checksum(data) != part.crc:
        raise MessageError("a group was damaged on the way: its checksum differs")
    return data
