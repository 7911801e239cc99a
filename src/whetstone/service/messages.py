"""Messages of the judge's own endpoints. The schemas of the OpenAPI page come from these types.

Requests are JSON, or (content type ``PACKED``) the codec between a judge and its workers. It also encodes
values that JSON does not have: NaN, keys that are not strings, and lone surrogates.

The cost of decoding a body is bounded, and an error names the field.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from whetstone.core.http.refusal import RequestRefused, bad_request
from whetstone.core.long_integers import read_json as read_long_json
from whetstone.core.problem import Problem, Program
from whetstone.judge.values import WireError
from whetstone.judge.workers.wire import unpack, values_in

PACKED = "application/vnd.whetstone.packed"
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class JudgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A program and its problem, which is included or named by its hash if the server has it.

    ``program`` is null if the reply had none. ``options`` are those of ``JudgeOptions``, by name. Their
    ``deadline_s`` bounds the time from the arrival of the request to its response.
    """

    program: Program | None = None
    problem: Problem | None = None
    problem_sha256: Sha256 | None = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if (self.problem is None) == (self.problem_sha256 is None):
            raise ValueError("give exactly one of `problem` and `problem_sha256`")


class ProblemReply(Struct, frozen=True):
    """The hash that names a problem in later requests, until the server drops the problem."""

    problem_sha256: str


class Info(Struct, frozen=True):
    """Facts about a server. ``languages`` can run there; ``window`` is the number of programs in flight that
    keep it busy."""

    version: str
    isolation: str
    environment: str
    workers: int
    window: int
    languages: list[str]
    most_body_bytes: int
    most_cases: int
    most_memory_mb: float | None
    longest_deadline_s: float


class NodeState(Struct, frozen=True):
    """One node of the cluster.

    state: ``ready``; or, with a ``reason``, ``starting``, ``left_out`` or ``lost``. losses: how often its
    server
    was lost. judged: the programs that its present server has finished.
    """

    name: str
    state: str
    workers: int
    in_flight: int = 0
    judged: int = 0
    losses: int = 0
    isolation: str = ""
    reason: str = ""


# Most values in one JSON text. Decoding this many empty lists blocks the interpreter for about 0.4 s.
MOST_VALUES = 2_000_000
# In CPython, an empty list takes 56 bytes, and the pointer to it 8.
_VALUE_BYTES = 64
T = TypeVar("T")


def read_message(data: bytes, content_type: str, kind: type[T]) -> T:
    """Decode ``data`` to a ``kind``.

    Raises RequestRefused: 400 for an invalid field, 413 for JSON with too many values. Decode long bodies in
    a thread: the time grows with their length.
    """
    if not _is_packed(content_type):
        return read_json(data, kind, "the body")
    try:
        return unpack(data, kind, most_values=MOST_VALUES)
    except (WireError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body: {error}") from None


def read_json(data: bytes, kind: type[T], place: str) -> T:
    """Decode JSON to a ``kind``. Raises RequestRefused, as ``read_message`` does."""
    check_value_count(data, place)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # msgspec also calls a long integer invalid.
        if isinstance(error, msgspec.ValidationError) and "out of range" not in str(error):
            raise bad_request(f"{place}: {error}") from None
        error_message = str(error)
    try:
        # msgspec rejects long integers and lone surrogates. Programs in replies can contain the latter.
        return msgspec.convert(read_long_json(data), kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"{place}: {error}") from None
    except (ValueError, RecursionError):
        raise bad_request(f"{place} is not JSON: {error_message}") from None


def check_value_count(data: bytes, place: str) -> None:
    """Raise RequestRefused (413) for JSON of more than ``MOST_VALUES`` values."""
    if count_json_values(data) > MOST_VALUES:
        raise RequestRefused(
            *(413, "too_many_values"),
            f"{place} holds more than {MOST_VALUES:,} JSON values; send fewer at once, or text instead",
        )


def estimate_memory(data: bytes, content_type: str) -> int:
    """Return an upper estimate of the memory of a body's decoded values, in bytes, without the
    body itself."""
    values = values_in(data, MOST_VALUES) if _is_packed(content_type) else count_json_values(data)
    return min(values, MOST_VALUES) * _VALUE_BYTES


def _is_packed(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == PACKED


def count_json_values(data: bytes) -> int:
    """Return an upper bound of the number of values in JSON. No value is constructed."""
    # A value has at least one byte, so short data cannot exceed the limit.
    if len(data) <= MOST_VALUES:
        return len(data)
    # Without escaped characters, each quote begins or ends a string. Structure is only outside strings.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if (texts := plain.count(b'"') // 2) > MOST_VALUES:
        return texts
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + sum(outside.count(mark) for mark in (b",", b":", b"[", b"{"))
