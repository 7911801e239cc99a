"""Messages between a judge and its workers: a length, a byte that names the codec, then msgspec structs.

Both ends are ours. The codec is MessagePack, except for what that cannot carry: very large integers, and text
with lone surrogates. For those it is that of ``values``, which takes some hundred times as long.
"""

from __future__ import annotations

import contextlib
import socket
import time
from functools import cache
from struct import Struct as Layout
from typing import Any, TypeVar, Union

import msgspec
from msgspec import Struct

from whetstone.judge.environments.environment import Environment
from whetstone.judge.options import JudgeOptions
from whetstone.judge.values import MAX_DEPTH, NotInert, WireError, decode, encode
from whetstone.judge.workers.counting import count_values
from whetstone.problem import AssertTests, CallTests, Problem, Program
from whetstone.sandbox import Tier
from whetstone.verdict import CaseJudgement, Judgement

_HEADER = Layout("<Q")
_MAX_MESSAGE = 1 << 30
_MSGPACK, _VALUES = b"m", b"v"
MAX_VALUE_DEPTH = MAX_DEPTH - 10
_NESTING = list, tuple, dict, set, frozenset
_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")


class Setup(Struct, frozen=True):
    """What a worker is started with: its isolation, the packages of programs, modules with comparisons."""

    minimum_tier: Tier
    tier: Tier | None
    environment: Environment
    comparisons: tuple[str, ...] = ()


class Ready(Struct, tag="ready", frozen=True):
    """The worker serves; ``isolation`` is its tier."""

    isolation: str


class Refused(Struct, tag="refused", frozen=True):
    """The worker cannot serve on this machine."""

    reason: str


class Progress(Struct, tag="progress", frozen=True):
    """One run of a case is over; the next deadline begins."""


class Refusals(Struct, tag="refusals", frozen=True):
    """Cases that are refused, whatever becomes of the worker."""

    cases: list[CaseJudgement]


class Done(Struct, tag="done", frozen=True):
    """The answer to a task."""

    judgement: Judgement


class Stop(Struct, tag="stop", frozen=True):
    """Nobody wants the judgement any more: end what runs, and stay. Means nothing to an idle worker."""


class Abandoned(Struct, tag="abandoned", frozen=True):
    """The answer to a task that was stopped."""


class Task(Struct, tag="task", frozen=True):
    """Judge this; the ``refused`` cases were judged by a worker that died, and are not judged again."""

    problem: Problem
    program: Program
    options: JudgeOptions
    refused: list[CaseJudgement] = []


class LinkClosed(Exception):
    """The other process is gone, or did not answer before the deadline."""


def task(problem: Problem, program: Program, options: JudgeOptions) -> Task:
    """A task, without what judging does not look at."""
    shown = None
    if isinstance(problem.tests, AssertTests):  # what their names stand for
        # Here, because it brings the syntax trees of Python with it, for this kind of test alone.
        from whetstone.judge.kinds.names import naming_lines

        shown = naming_lines(problem.statement, problem.starter or "")
    bare = msgspec.structs.replace(problem, statement="", starter=shown, wrong=[], source="", meta={})
    return Task(bare, program, options)


def pack(message: Struct) -> bytes:
    """Encode a message. Raises NotInert for a value that plain data cannot hold."""
    try:
        if isinstance(message, Task) and isinstance(message.problem.tests, CallTests):
            _refuse_depth(message.problem.tests)
        # What is refused here is an integer beyond 64 bits, or a lone surrogate.
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            return _limited(_MSGPACK + _encoder.encode(message))
        builtins = msgspec.to_builtins(message, builtin_types=(bytes, bytearray), str_keys=False)
        return _VALUES + encode(builtins, max_bytes=_MAX_MESSAGE)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotInert(str(error)) from None


def _refuse_depth(tests: CallTests) -> None:
    """Raise NotInert for values that could not be handed on to a run."""
    if any(_is_deeper([case.args, case.kwargs, case.expected], MAX_VALUE_DEPTH) for case in tests.cases):
        raise NotInert(f"a value of more than {MAX_VALUE_DEPTH} levels")


def _is_deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in items if isinstance(item, _NESTING))


def _limited(data: bytes) -> bytes:
    if len(data) > _MAX_MESSAGE:
        raise NotInert(f"larger than {_MAX_MESSAGE >> 20} MiB")
    return data


def values_in(data: bytes, most: int) -> int:
    """How many values a packed message holds at most; more than ``most`` are not counted to the end."""
    return count_values(memoryview(data)[1:], most) if data[:1] == _MSGPACK else min(len(data), most)


def unpack(data: bytes, *kinds: type[T], most_values: int | None = None) -> T:
    """Decode a message of one of ``kinds``. Raises WireError.

    ``most_values`` bounds the values in a message that is not our own.
    """
    try:
        if data[:1] == _MSGPACK:
            packed = memoryview(data)[1:]
            if most_values is not None and count_values(packed, most_values) > most_values:
                raise WireError(f"it holds more than {most_values:,} values")
            return _decoder(*kinds).decode(packed)
        return msgspec.convert(decode(data[1:], most_items=most_values), Union[kinds])  # noqa: UP007
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from None


@cache
def _decoder(*kinds: type[T]) -> msgspec.msgpack.Decoder[T]:
    return msgspec.msgpack.Decoder(Union[kinds])  # noqa: UP007


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
