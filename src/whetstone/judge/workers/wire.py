"""Messages between a judge and its workers: a length, a byte that names the codec, then msgspec structs.

Both ends are trusted. The codec is MessagePack. It cannot encode integers beyond 64 bits and text with lone
surrogates. Messages that contain them use the codec of ``values``, which is about a hundred times slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import threading
import time
from functools import cache
from struct import Struct as Layout
from typing import Any, TypeVar, Union

import msgspec
from msgspec import Struct

from whetstone.core.problem import AssertTests, CallTests, Problem, Program
from whetstone.core.verdict import CaseJudgement, Judgement
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.options import JudgeOptions
from whetstone.judge.values import MAX_DEPTH, NotInert, WireError, decode, encode
from whetstone.sandbox import Tier

_PR_SET_PDEATHSIG = 1
_POLLRDHUP = 0x2000
_HEADER = Layout("<Q")
_MAX_MESSAGE = 1 << 30
_MSGPACK, _VALUES = b"m", b"v"
MAX_VALUE_DEPTH = MAX_DEPTH - 10
_NESTING = list, tuple, dict, set, frozenset
_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")


class Setup(Struct, frozen=True):
    """The configuration of a worker: its isolation, the packages of programs, modules with comparisons."""

    minimum_tier: Tier
    tier: Tier | None
    environment: PackageEnvironment
    comparisons: tuple[str, ...] = ()


class Ready(Struct, tag="ready", frozen=True):
    """The worker serves; ``isolation`` is its tier."""

    isolation: str


class WorkerUnavailable(Struct, tag="refused", frozen=True):
    """The worker cannot serve on this machine."""

    reason: str


class CaseProgress(Struct, tag="progress", frozen=True):
    """A run of a case has ended, so the timeout starts again."""


class Refusals(Struct, tag="refusals", frozen=True):
    """Cases that are refused. They stay so even if the worker dies."""

    cases: list[CaseJudgement]


class JudgementReply(Struct, tag="done", frozen=True):
    """The answer to a task."""

    judgement: Judgement


class Stop(Struct, tag="stop", frozen=True):
    """The judgement is no longer wanted: end the current run, but keep serving. An idle worker ignores it."""


class AbandonedReply(Struct, tag="abandoned", frozen=True):
    """The answer to a task that was stopped."""


class JudgeTask(Struct, tag="task", frozen=True):
    """A program to judge. A worker that died has judged the ``refused`` cases; they are not judged again.
    The problem names ``environment``, if that is not the worker's."""

    problem: Problem
    program: Program
    options: JudgeOptions
    refused: list[CaseJudgement] = []
    environment: PackageEnvironment | None = None


class RunTask(Struct, tag="run", frozen=True):
    """Run a program once. ``wall_s`` bounds CPU time and wall time."""

    language: str
    source: str
    stdin: bytes
    wall_s: float
    memory_bytes: int
    output_bytes: int


class CommandResult(Struct, frozen=True):
    """The result of a compiler or program. ``ended`` is a ``sandbox.EndReason``, or ``refused`` if it does
    not compile."""

    ended: str
    exit_code: int | None
    signal: int | None
    cpu_s: float
    wall_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes


class RunReply(Struct, tag="run_reply", frozen=True):
    """The result of a task. ``fault``: the machine could not run it. ``wrong``: the request is invalid."""

    compiled: CommandResult | None = None
    run: CommandResult | None = None
    fault: str = ""
    wrong: str = ""


class LinkClosed(Exception):
    """The other process has exited, or did not answer before the deadline."""


def task(
    problem: Problem, program: Program, options: JudgeOptions, environment: PackageEnvironment | None
) -> JudgeTask:
    """Return a task without the fields of a problem that judging does not read."""
    starter = None
    # For these tests, the statement tells which names the program must define. Imported here, because only
    # this kind of test needs the module ``ast``.
    if isinstance(problem.tests, AssertTests):
        from whetstone.judge.kinds.assert_names import naming_lines

        starter = naming_lines(problem.statement, problem.starter or "")
    bare = msgspec.structs.replace(problem, statement="", starter=starter, wrong=[], source="", meta={})
    return JudgeTask(bare, program, options, environment=environment)


def pack(message: Struct) -> bytes:
    """Encode a message. Raises NotInert for a value that plain data cannot hold."""
    try:
        if isinstance(message, JudgeTask) and isinstance(message.problem.tests, CallTests):
            _check_depth(message.problem.tests)
        # MessagePack raises these for an integer beyond 64 bits and for a lone surrogate.
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            data = _MSGPACK + _encoder.encode(message)
            if len(data) > _MAX_MESSAGE:
                raise NotInert(f"larger than {_MAX_MESSAGE >> 20} MiB")
            return data
        builtins = msgspec.to_builtins(message, builtin_types=(bytes, bytearray), str_keys=False)
        return _VALUES + encode(builtins, max_bytes=_MAX_MESSAGE)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotInert(str(error)) from None


def _check_depth(tests: CallTests) -> None:
    """Raise NotInert for values that are too deep to be sent to a run."""
    if any(_is_deeper([case.args, case.kwargs, case.expected], MAX_VALUE_DEPTH) for case in tests.cases):
        raise NotInert(f"a value of more than {MAX_VALUE_DEPTH} levels")


def _is_deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in items if isinstance(item, _NESTING))


def values_in(data: bytes, limit: int) -> int:
    """Return an upper bound of the values in a packed message. Counting stops soon after ``most``."""
    return count_values(memoryview(data)[1:], limit) if data[:1] == _MSGPACK else min(len(data), limit)


def unpack(data: bytes, *kinds: type[T], most_values: int | None = None) -> T:
    """Decode a message of one of ``kinds``. Raises WireError.

    ``most_values`` limits the values in a message from an untrusted source.
    """
    try:
        if data[:1] == _MSGPACK:
            packed = memoryview(data)[1:]
            if most_values is not None and count_values(packed, most_values) > most_values:
                raise WireError(f"it contains more than {most_values:,} values")
            return _decoder(*kinds).decode(packed)
        return msgspec.convert(decode(data[1:], max_items=most_values), Union[kinds])  # noqa: UP007
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from None


@cache
def _decoder(*kinds: type[T]) -> msgspec.msgpack.Decoder[T]:
    return msgspec.msgpack.Decoder(Union[kinds])  # noqa: UP007


def channel_to_parent(fd: str) -> socket.socket:
    """Return the channel with this descriptor, and end this process together with its parent.

    The kernel kills the process, and a thread ends it when the channel closes, even while a program runs.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(fd))
    threading.Thread(target=_leave_with_parent, args=(channel.fileno(),), daemon=True).start()
    return channel


def _leave_with_parent(fd: int) -> None:
    poller = select.poll()
    poller.register(fd, _POLLRDHUP)
    poller.poll()
    # The fork-servers end when their control sockets close, and those close when this process exits.
    os._exit(0)


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
    size = _HEADER.unpack(_read_exactly(channel, _HEADER.size, deadline))[0]
    return _read_exactly(channel, size, deadline)


def _read_exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
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


# For each first byte: the size of a value with it, and the number of bytes after it that contain a further
# length.
_LENGTHS = [1] * 256
_LENGTH_BYTES = [0] * 256
for _byte in range(0xA0, 0xC0):  # short text
    _LENGTHS[_byte] = 1 + _byte - 0xA0
for _byte, _size in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.items():  # floats, integers
    _LENGTHS[_byte] = _size
for _byte, _size in {0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}.items():
    _LENGTHS[_byte] = _size  # integers; the heads of lists and mappings
for _power, _byte in enumerate(range(0xD4, 0xD9)):  # extensions of a fixed length
    _LENGTHS[_byte] = 2 + (1 << _power)
for _byte, _size in {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}.items():  # bytes, text
    _LENGTHS[_byte], _LENGTH_BYTES[_byte] = 1 + _size, _size
for _byte, _size in {0xC7: 1, 0xC8: 2, 0xC9: 4}.items():  # extensions
    _LENGTHS[_byte], _LENGTH_BYTES[_byte] = 2 + _size, _size


def count_values(data: memoryview, limit: int) -> int:
    """Return the number of values in ``data``. Counting stops soon after ``limit``.

    For a malformed message, the result is at least the number up to the error.
    """
    if len(data) <= limit:
        return len(data)  # each value takes at least one byte
    at, count, end = 0, 0, len(data)
    while at < end and count <= limit:
        count += 1
        first = data[at]
        if length_bytes := _LENGTH_BYTES[first]:
            at += int.from_bytes(data[at + 1 : at + 1 + length_bytes], "big")
        at += _LENGTHS[first]
    return count
