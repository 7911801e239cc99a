"""The messages between a flow and its clients: structs of ``protocol`` as MessagePack.

Messages with groups travel in frames: the size of the content and its CRC-32 (32 bits each, little endian),
and the content. A delivery is one frame. A batch is a frame with its BatchResponse, whose groups are empty,
and a frame for each group, so that neither side encodes a whole batch at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar, Union

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from whetstone.rollout.group_facts import checksum
from whetstone.rollout.protocol import BatchPending, BatchResponse, DeliveryRequest
from whetstone.rollout.state import Offer

FRAME = "application/vnd.whetstone.frame"
PACKED = "application/msgpack"
RUN_HEADER = "x-whetstone-run"
_HEAD = struct.Struct("<II")
T = TypeVar("T")


class MessageError(ValueError):
    """Bytes that are no valid message, or differ from what was sent."""


class DeliveryReceipts(Struct, frozen=True):
    """The result of each delivery."""

    receipts: list[str]


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
    """The answer to a request that returns nothing."""


def encode(message: Struct) -> bytes:
    """Encode a message."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes | memoryview, *kinds: type[T]) -> T:
    """Decode a message of one of ``kinds``. Raises MessageError."""
    try:
        return msgspec.msgpack.decode(data, type=Union[kinds])  # noqa: UP007
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MessageError(str(error)) from None


def frame(content: bytes) -> bytes:
    """Return the frame of a message or a group."""
    return _HEAD.pack(len(content), checksum(content)) + content


def read_delivery(data: bytes) -> DeliveryRequest:
    """Return the delivery of a body. Raises MessageError."""
    contents = list(_contents(data))
    if len(contents) != 1:
        raise MessageError(f"{len(contents)} frames in place of one")
    return decode(contents[0], DeliveryRequest)


def read_batch(data: bytes) -> BatchResponse | BatchPending:
    """Return the batch of a body, or why there is none yet. Raises MessageError."""
    contents = _contents(data)
    response = decode(next(contents, b""), BatchResponse, BatchPending)
    if isinstance(response, BatchPending):
        return response
    groups = [bytes(content) for content in contents]
    if len(groups) != len(response.groups):
        raise MessageError(f"{len(groups)} groups in place of {len(response.groups)}")
    found = [replace(item, group=group) for item, group in zip(response.groups, groups, strict=True)]
    return replace(response, groups=found)


def _contents(data: bytes) -> Iterator[memoryview]:
    """Yield the content of each frame. Raises MessageError for one that is cut off or damaged."""
    left = memoryview(data)
    while left:
        if len(left) < _HEAD.size:
            raise MessageError("the head of a frame is cut off")
        size, crc = _HEAD.unpack_from(left)
        content, left = left[_HEAD.size : _HEAD.size + size], left[_HEAD.size + size :]
        if len(content) < size:
            raise MessageError("a frame is cut off")
        if checksum(content) != crc:
            raise MessageError("a frame was damaged on the way: its checksum differs")
        yield content
