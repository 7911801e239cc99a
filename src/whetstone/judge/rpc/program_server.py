"""In the program's process: import a program once, and call its functions as the judge requests, by value.

Neither expected values nor verdicts reach this process. It sends plain data in the ``values`` codec, each
after its length: first ``["loaded"]`` or ``["failed", text]``, then one answer for each request.

An answer is ``["value", v]``, ``["raised", text]``, ``["missing"]``, ``["unplain"]`` or ``["unusable",
text]``. "unplain": a value without a plain form, or a too long one. The judge may then request its truth.
"unusable": a value that the test's conversion (``set(f(x))``) does not accept. The program could write all
this itself: these are answers, not verdicts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from whetstone.judge.rpc.loading import SourceError, describe, load_program, write_all
from whetstone.judge.values import NotInert, decode, encode

LENGTH_BYTES = 4
# The limit of one answer, far above any expected one.
MAX_ANSWER_BYTES = 8 << 20
# Requests the truth of the last result, in the place of a function's name.
TRUTH_OF_LAST = ""
# Functions that a test may apply to a result before it compares. They run here, because the result may be an
# iterator.
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "set": set,
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "len": len,
}
_MISSING = object()


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, and answer requests until the judge closes the link."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    try:
        scope = load_program(payload.decode("utf-8", "surrogatepass"))
    except SourceError as failure:
        write_all(result_fd, failure.answer())
        os._exit(0)
    except BaseException as error:
        _send_value(link_fd, ["failed", describe(error)])
        os._exit(0)
    _send_value(link_fd, ["loaded"])
    try:
        answer_all(link_fd, scope)
    finally:
        # Exit handlers and threads of the program have no effect on the verdict, so they are not waited for.
        os._exit(0)


def answer_all(link_fd: int, scope: dict[str, Any]) -> None:
    """Answer requests with the program's globals ``scope``, until the link is closed."""
    last: object = None
    while request := _read(link_fd):
        function, args, kwargs, *conversion = decode(request)
        target: Any = bool if function == TRUTH_OF_LAST else scope.get(function, _MISSING)
        if target is _MISSING or isinstance(target, ModuleType):
            _send_value(link_fd, ["missing"])
            continue
        try:
            last = target(last) if function == TRUTH_OF_LAST else target(*args, **kwargs)
            if conversion:
                last = _convert(last, conversion[0])
            data = encode(["value", last], max_bytes=MAX_ANSWER_BYTES)
        except _Unusable as error:
            data = encode(["unusable", str(error)])
        except NotInert:
            data = encode(["unplain"])
        except BaseException as error:
            data = encode(["raised", describe(error)])
        _send(link_fd, data)


class _Unusable(Exception):
    """A value that the test's conversion does not accept. The message gives the reason."""


def _convert(value: Any, name: str) -> Any:
    """Return the value as the test converts it.

    Raises _Unusable if a plain value cannot be converted, and the exceptions of the program's own objects.
    """
    try:
        return CONVERSIONS[name](value)
    except MemoryError:
        raise
    except Exception as error:
        with suppress(NotInert):
            encode(value, max_bytes=MAX_ANSWER_BYTES)
            raise _Unusable(describe(error)) from None
        raise


def _send_value(fd: int, message: list[Any]) -> None:
    _send(fd, encode(message))


def _send(fd: int, data: bytes) -> None:
    write_all(fd, len(data).to_bytes(LENGTH_BYTES, "little") + data)


def _read(fd: int) -> bytes:
    """Return the next request; empty if the judge has closed the link."""
    size = int.from_bytes(_read_exactly(fd, LENGTH_BYTES), "little")
    return _read_exactly(fd, size)


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(fd, size - len(data))
        if not part:
            return b""
        data += part
    return data
