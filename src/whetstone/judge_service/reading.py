"""Bodies into typed messages, with an error that names the field, at a cost that is bounded beforehand."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from whetstone.judge.values import WireError
from whetstone.judge.workers.wire import unpack, values_in
from whetstone.judge_service.messages import PACKED
from whetstone.judge_service.refusal import Refused, bad_request

MOST_NODES = 2_000_000
"""Values in one JSON text. Decoding so many empty lists holds the interpreter for about 0.4 s."""
_VALUE_BYTES = 64
T = TypeVar("T")


def read_message(data: bytes, content_type: str, kind: type[T], what: str = "the body") -> T:
    """``data`` as a ``kind``.

    Raises Refused: 400 says which field of ``what`` does not fit, 413 that JSON holds too many values. A long
    body must not be read on an event loop: it takes time in proportion to its length.
    """
    if not _is_packed(content_type):
        return read_json(data, kind, what)
    try:
        return unpack(data, kind, most_values=MOST_NODES)
    except (WireError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"{what}: {error}") from None


def read_json(data: bytes, kind: type[T], what: str) -> T:
    """The same for JSON."""
    check_nodes(data, what)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"{what}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = str(error)
    try:  # JSON that msgspec does not take: lone surrogates
        return msgspec.convert(json.loads(data), kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"{what}: {error}") from None
    except (ValueError, RecursionError):
        raise bad_request(f"{what} is no JSON: {said}") from None


def check_nodes(data: bytes, what: str) -> None:
    """Raise Refused (413) for JSON of more than ``MOST_NODES`` values."""
    if nodes_of(data) > MOST_NODES:
        raise Refused(
            *(413, "too_many_values"),
            f"{what} holds more than {MOST_NODES:,} JSON values; send less at once, or text in their place",
        )


def memory_of(data: bytes, content_type: str) -> int:
    """About how many bytes of memory the values of a body take beside the body, at most."""
    values = values_in(data, MOST_NODES) if _is_packed(content_type) else nodes_of(data)
    return min(values, MOST_NODES) * _VALUE_BYTES


def _is_packed(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == PACKED


def nodes_of(data: bytes) -> int:
    """How many values the JSON text ``data`` has at most, counted without making any of them."""
    if len(data) <= MOST_NODES:
        return len(data)  # a value takes a byte at least
    # Without what is escaped, text begins and ends at a quote, and what is between two texts is structure.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if (texts := plain.count(b'"') // 2) > MOST_NODES:
        return texts
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + sum(outside.count(mark) for mark in (b",", b":", b"[", b"{"))
