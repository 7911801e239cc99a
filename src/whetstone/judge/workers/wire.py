"""Messages between a judge and its workers: a length, then msgspec structs in the ``values`` codec.

Both ends are ours. The codec is used instead of JSON because a problem may hold a NaN or a very
large integer as an expected value.
"""

from __future__ import annotations

import socket
import time
from struct import Struct as Layout
from typing import TypeVar, Union

import msgspec
from msgspec import Struct

from whetstone.judge.judging import JudgeOptions
from whetstone.judge.values import NotInert, WireError, decode, encode
from whetstone.problem import Problem, Program
from whetstone.verdict import Judgement

_HEADER = Layout("<Q")
_MAX_MESSAGE = 1 << 30
T = TypeVar("T")


class Ready(Struct, tag="ready", frozen=True):
    """The worker serves; ``isolation`` is its tier."""

    isolation: str


class Refused(Struct, tag="refused", frozen=True):
    """The worker cannot serve on this machine."""

    reason: str


class Progress(Struct, tag="progress", frozen=True):
    """One run of a case is over; the next deadline begins."""


class Done(Struct, tag="done", frozen=True):
    """The answer to a task."""

    judgement: Judgement


class Stop(Struct, tag="stop", frozen=True):
    """Nobody wants the judgement any more: end what runs, and stay. Means nothing to an idle worker."""


class Abandoned(Struct, tag="abandoned", frozen=True):
    """The answer to a task that was stopped."""


class Task(Struct, tag="task", frozen=True):
    """Judge this."""

    problem: Problem
    program: Program
    options: JudgeOptions


class LinkClosed(Exception):
    """The other process is gone, or did not answer before the deadline."""


def pack(message: Struct) -> bytes:
    """Encode a message. Raises NotInert for a value that JSON-like data cannot hold."""
    try:
        builtins = msgspec.to_builtins(message, builtin_types=(bytes, bytearray), str_keys=False)
        return encode(builtins, max_bytes=_MAX_MESSAGE)
    except (TypeError, ValueError) as error:
        raise NotInert(str(error)) from None


def unpack(data: bytes, *kinds: type[T]) -> T:
    """Decode a message of one of ``kinds``. Raises WireError."""
    try:
        return msgspec.convert(decode(data), Union[kinds])  # noqa: UP007
    except msgspec.ValidationError as error:
        raise WireError(str(error)) from None


def send(channel: socket.socket, data: bytes, timeout_s: float | None = None) -> None:
    """Write a packed message within ``timeout_s``. Raises LinkClosed."""
    try:
        channel.settimeout(timeout_s)
        channel.sendall(_HEADER.pack(len(data)) + data)
    except OSError as error:
        raise LinkClosed(str(error)) from None


def receive(channel: socket.socket, timeout_s: float | None = None) -> bytes:
    """Read one packed message within ``timeout_s``. Raises LinkClosed."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    size = _HEADER.unpack(_exactly(channel, _HEADER.size, deadline))[0]
    return _exactly(channel, size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            channel.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            part = channel.recv(min(size - len(parts), 1 << 20))
        except TimeoutError:
            raise LinkClosed("no answer before the deadline") from None
        except OSError as error:
            raise LinkClosed(str(error)) from None
        if not part:
            raise LinkClosed("the process ended")
        parts += part
    return bytes(parts)
