"""Inside the locked child: call one function of the program, or operations on one object, for each case, and
hand out what they return.

The expected value never comes here. What leaves is, for each case, inert data in the ``values`` codec:
``["value", v]``, ``["values", [encoded v, …]]`` (one for each operation), ``["raised", text]``,
``["missing", name]``, ``["unplain", text]`` or ``["too_large", text]``; or, in place of it all, what
``CompileFailure`` answers. The program could write these itself: they are answers, not verdicts. Each case
meets it imported anew.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from typing import Any

from whetstone.judge.harness.loading import (
    CompileFailure,
    Loader,
    describe,
    write_all,
)
from whetstone.judge.harness.prelude import PRELUDE
from whetstone.judge.values import NotInert, TooLarge, decode, encode

MAX_ITEMS = 1_000_000
MAX_BYTES = 64 << 20
"""Of what one case returns: whoever compares it has to hold it beside what is expected."""


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load, call and write for each case, and leave at once: threads the program left have no say."""
    source, function, class_name, cases, cpu_s, code = decode(payload)
    try:
        loader = Loader(source, code)
    except CompileFailure as failure:
        write_all(result_fd, failure.answer())
        os._exit(0)
    if link_fd is not None:  # closed before the program runs, which has no way to what it holds then
        os.write(link_fd, loader.code_to_hand_out())
        os.close(link_fd)
    names = PRELUDE if class_name else None
    for number, (args, kwargs, operations) in enumerate(cases):
        if number:
            loader.renew()
        try:
            scope = loader.load(names)
            if operations:
                data = encode(_operate(scope, operations, args), max_bytes=MAX_BYTES)
            else:
                data = encode(_call(scope, function, class_name, args, kwargs), max_bytes=MAX_BYTES)
        except TooLarge as error:
            data = encode(["too_large", str(error)])
        except NotInert as error:
            data = encode(["unplain", str(error)])
        except BaseException as error:
            data = encode(["raised", describe(error)])
        write_all(result_fd, data)
        # The rest goes to another process when half the time is gone: no case is to fail for those before.
        if time.process_time() > cpu_s / 2:
            break
    os._exit(0)


def _call(
    scope: dict[str, Any], function: str, class_name: str | None, args: list[Any], kwargs: dict[str, Any]
) -> list[Any]:
    owner = class_name or function
    if owner not in scope:
        return ["missing", owner]
    target = scope[owner]
    if class_name:
        instance = target()
        target = getattr(instance, function, None)
        if target is None:
            return ["missing", f"{class_name}.{function}"]
    return ["value", _materialised(target(*args, **kwargs))]


def _operate(scope: dict[str, Any], operations: list[str], args: list[list[Any]]) -> list[Any]:
    """Construct an object of the class that the first operation names, and call the others on it."""
    class_name = operations[0]
    if class_name not in scope:
        return ["missing", class_name]
    instance = scope[class_name](*args[0])
    returned = [encode(None)]
    for name, arguments in zip(operations[1:], args[1:], strict=True):
        method = getattr(instance, name, None)
        if method is None:
            return ["missing", f"{class_name}.{name}"]
        # Encoded at once: a later operation may change the very object that this one returned.
        returned.append(encode(_materialised(method(*arguments)), max_bytes=MAX_BYTES))
    return ["values", returned]


def _materialised(value: Any) -> Any:
    """An iterator (generator, map, zip, dict view) as the list of what it yields."""
    kind = type(value)
    view = kind in (type({}.keys()), type({}.values()), type({}.items()))
    if not view and (not hasattr(kind, "__next__") or not hasattr(kind, "__iter__")):
        return value
    items = list(islice(iter(value), MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise NotInert(f"an iterator of more than {MAX_ITEMS} items")
    return items
