"""What travels between a flow and its clients: MessagePack of typed messages, with groups as bytes behind.

A frame is the size of its head (32 bits, little endian), the head, and the groups one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from whetstone.flow.books import Offer
from whetstone.flow.desk import Delivery
from whetstone.flow.exchange import Made, Told
from whetstone.flow.facts import Facts, checksum

FRAME = "application/vnd.whetstone.frame"
PACKED = "application/msgpack"
RUN_HEADER = "x-whetstone-run"
_SIZE = struct.Struct("<I")
T = TypeVar("T")


class Garbled(ValueError):
    """Bytes that are no message, or not the ones that were sent."""


class Piece(Struct, frozen=True, array_like=True):
    """The facts of a group whose bytes follow: how many, and their CRC-32."""

    facts: Facts
    size: int
    crc: int


class DeliveredItem(Struct, frozen=True, array_like=True):
    """A finished prompt."""

    serial: int
    draw: int
    groups: dict[str, Piece]


class Delivered(Struct, frozen=True):
    """The head of a delivery."""

    replica: str
    items: list[DeliveredItem]
    incarnation: str = ""


class Receipts(Struct, frozen=True):
    """What became of each."""

    receipts: list[str]


class GivenBack(Struct, frozen=True):
    """Leases that end without a group; see ``ForReplicas.give_back``."""

    replica: str
    serials: list[int]
    why: str
    leaves: bool
    incarnation: str = ""


class Publishes(Struct, frozen=True):
    """A trainer offers weights."""

    model: str
    offer: Offer


class Resumes(Struct, frozen=True):
    """A trainer begins; see ``Desk.resumed``."""

    model: str
    version: int
    drawn: int
    unused: list[int]


class Done(Struct, frozen=True):
    """It has happened."""

    done: bool = True


class ToldPiece(Struct, frozen=True, array_like=True):
    """A group of a batch; see ``exchange.Told``."""

    draw: int
    reason: str
    piece: Piece


class MadeHead(Struct, frozen=True):
    """The head of a batch; ``waiting`` has words where there is none yet."""

    version: int
    told: list[ToldPiece] = []
    lost: dict[str, int] = {}
    drawn: int = 0
    unused: list[int] = []
    waiting: str = ""


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """A message. Raises Garbled."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Garbled(str(error)) from None


def head_bytes(head: Struct) -> bytes:
    """The beginning of a frame."""
    data = msgspec.msgpack.encode(head)
    return _SIZE.pack(len(data)) + data


def framed(head: Struct, groups: Sequence[bytes]) -> bytes:
    """A whole frame."""
    return b"".join((head_bytes(head), *groups))


def delivery_frame(replica: str, deliveries: Sequence[Delivery], incarnation: str = "") -> bytes:
    """Finished prompts as they travel."""
    items = [
        DeliveredItem(
            each.serial,
            each.draw,
            {name: Piece(facts, len(data), checksum(data)) for name, (facts, data) in each.groups.items()},
        )
        for each in deliveries
    ]
    return framed(
        Delivered(replica, items, incarnation),
        [data for each in deliveries for _, data in each.groups.values()],
    )


def read_delivery(data: bytes) -> tuple[str, list[Delivery], str]:
    """Which replica delivers, what, and its incarnation. Raises Garbled."""
    head, groups = _opened(data, Delivered)
    deliveries = [
        Delivery(
            item.serial,
            item.draw,
            {name: (piece.facts, _group(groups, piece)) for name, piece in item.groups.items()},
        )
        for item in head.items
    ]
    if groups.left:
        raise Garbled("there is more than its head says")
    return head.replica, deliveries, head.incarnation


def read_batch(data: bytes) -> Made | str:
    """A batch, or why there is none yet. Raises Garbled."""
    head, groups = _opened(data, MadeHead)
    if head.waiting:
        return head.waiting
    told = [Told(t.draw, t.reason, t.piece.facts, _group(groups, t.piece)) for t in head.told]
    return Made(head.version, told, head.lost, head.drawn, head.unused)


def _opened(data: bytes, kind: type[T]) -> tuple[T, _Cutter]:
    if len(data) < _SIZE.size:
        raise Garbled("there is no head")
    (size,) = _SIZE.unpack_from(data)
    if size > len(data) - _SIZE.size:
        raise Garbled("the head is cut off")
    view = memoryview(data)
    return decoded(view[_SIZE.size : _SIZE.size + size], kind), _Cutter(view[_SIZE.size + size :])


class _Cutter:
    """Cuts groups off the front of what is ``left``."""

    def __init__(self, left: memoryview) -> None:
        self.left = left

    def cut(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises Garbled."""
        if not 0 <= size <= len(self.left):
            raise Garbled("a group is cut off")
        data, self.left = bytes(self.left[:size]), self.left[size:]
        return data


def _group(groups: _Cutter, piece: Piece) -> bytes:
    data = groups.cut(piece.size)
    if checksum(data) != piece.crc:
        raise Garbled("a group is not the one that was sent: its checksum differs")
    return data
