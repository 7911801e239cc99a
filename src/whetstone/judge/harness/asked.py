"""Inside the locked child: import a program once, and call its functions as the judge asks, by value.

The expected values never come here, nor what was made of an answer. What leaves is inert data in the
``values`` codec behind its length: ``["loaded"]`` or ``["failed", text]`` first, and then for each request
``["value", v]``, ``["raised", text]``, ``["missing"]``, ``["unplain"]`` for what has no plain form or too
long a one, of which the judge may then ask whether it is true, or ``["unusable", text]`` for what cannot be
converted as the test does (``set(f(x))``). The program may write all this itself: these are answers, not
verdicts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, load_program, write_all
from whetstone.judge.values import NotInert, decode, encode

LENGTH_BYTES = 4
MOST_ANSWERED_BYTES = 8 << 20
"""Of one answer: far more than any that is expected."""
TRUTH_OF_LAST = ""
"""Asked for in place of a function: the truth of what the last one returned."""
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "set": set,
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "len": len,
}
"""What a test may do with what a function returns before it compares: here it may be an iterator, say."""
_MISSING = object()


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, and answer until the judge closes the link."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    try:
        scope = load_program(payload.decode("utf-8", "surrogatepass"))
    except CompileFailure as failure:
        write_all(result_fd, failure.answer())
        os._exit(0)
    except BaseException as error:
        _say(link_fd, ["failed", describe(error)])
        os._exit(0)
    _say(link_fd, ["loaded"])
    try:
        answer_all(link_fd, scope)
    finally:
        # Nobody waits for what the program would still do: its exit handlers, its threads.
        os._exit(0)


def answer_all(link_fd: int, scope: dict[str, Any]) -> None:
    """Answer one request after the other, from the program's globals."""
    last: object = None
    while request := _read(link_fd):
        function, args, kwargs, *conversion = decode(request)
        target: Any = bool if function == TRUTH_OF_LAST else scope.get(function, _MISSING)
        if target is _MISSING or isinstance(target, ModuleType):
            _say(link_fd, ["missing"])
            continue
        try:
            last = target(last) if function == TRUTH_OF_LAST else target(*args, **kwargs)
            if conversion:
                last = _converted(last, conversion[0])
            data = encode(["value", last], max_bytes=MOST_ANSWERED_BYTES)
        except _Unusable as error:
            data = encode(["unusable", str(error)])
        except NotInert:
            data = encode(["unplain"])
        except BaseException as error:
            data = encode(["raised", describe(error)])
        _send(link_fd, data)


class _Unusable(Exception):
    """A value that the test's conversion does not take. The text says why."""


def _converted(value: Any, name: str) -> Any:
    """The value as the test converts it. Raises _Unusable where a plain one does not take that, and what the
    program's own objects raise in it."""
    try:
        return CONVERSIONS[name](value)
    except MemoryError:
        raise
    except Exception as error:
        with suppress(NotInert):
            encode(value, max_bytes=MOST_ANSWERED_BYTES)
            raise _Unusable(describe(error)) from None
        raise


def _say(fd: int, message: list[Any]) -> None:
    _send(fd, encode(message))


def _send(fd: int, data: bytes) -> None:
    write_all(fd, len(data).to_bytes(LENGTH_BYTES, "little") + data)


def _read(fd: int) -> bytes:
    """The next request; empty when the judge has closed the link."""
    size = int.from_bytes(_exactly(fd, LENGTH_BYTES), "little")
    return _exactly(fd, size)


def _exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(fd, size - len(data))
        if not part:
            return b""
        data += part
    return data
