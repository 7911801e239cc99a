"""In the program's process: call a function, or operations on one object, for each case, and return the
results.

Expected values never reach this process. For each case it writes plain data in the ``values`` codec:
``["value", v]``, ``["values", [encoded v, …]]`` (one for each operation), ``["raised", text]``, ``["missing",
name]``, ``["unplain", text]`` or ``["too_large", text]``. If the source does not compile, it writes the
``answer`` of ``SourceError`` instead. The program could write all this itself: these are answers, not
verdicts. Each case imports the program anew.

Arguments are built, and results reduced, by the forms of nodes of ``CallTests.nodes``.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import time
from collections.abc import Collection
from itertools import islice
from typing import Any

from whetstone.judge.rpc.loading import (
    Loader,
    SourceError,
    describe,
    write_all,
)
from whetstone.judge.rpc.nodes import build, fresh_classes, reduce
from whetstone.judge.values import NotInert, TooLarge, decode, encode

# The modules whose names LeetCode provides to a program, which therefore does not import them. The graders of
# APPS, TACO and PRIME provide them to bare functions as well.
# Later modules win: `Counter` is the one of collections, not of typing.
_STAR_MODULES = (
    *("typing", "string", "re", "datetime", "operator", "copy", "random", "statistics"),
    *("itertools", "functools", "heapq", "bisect", "math", "collections"),
)
_MODULES = (*_STAR_MODULES, "sys", "json", "queue", "time")
MAX_ITEMS = 1_000_000
# LeetCode's recursion limit, for classes as it asks for them. Other functions have Python's own.
_CLASS_RECURSION = 550_000
# The largest result of a case. The judge holds it in memory together with the expected value.
MAX_BYTES = 64 << 20


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run each case and write its result. Exits without waiting for threads of the program."""
    source, function, class_name, cases, cpu_s, code, (result, no_result, nodes) = decode(payload)
    if class_name:
        sys.setrecursionlimit(_CLASS_RECURSION)
    try:
        loader = Loader(source, code)
    except SourceError as failure:
        write_all(result_fd, failure.answer())
        os._exit(0)
    # The link is closed before the program runs, so the program cannot write to it.
    if link_fd is not None:
        os.write(link_fd, loader.encoded_code())
        os.close(link_fd)
    names = _prelude_names(loader.names_in_code(), class_name or function)
    for number, (args, kwargs, operations) in enumerate(cases):
        if number:
            loader.reset()
        try:
            scope = loader.load(names | fresh_classes() if nodes else names)
            if operations:
                data = encode(_operate(scope, operations, args, no_result, nodes), max_bytes=MAX_BYTES)
            else:
                arguments = (*enumerate(args), *kwargs.items())
                given = {name: build(nodes.get(str(name)), value, scope) for name, value in arguments}
                answer = _call(scope, function, class_name, given, result, nodes)
                data = encode(answer, max_bytes=MAX_BYTES)
        except TooLarge as error:
            data = encode(["too_large", str(error)])
        except NotInert as error:
            data = encode(["unplain", str(error)])
        except BaseException as error:
            data = encode(["raised", describe(error)])
        write_all(result_fd, data)
        # After half of the CPU time, the other cases run in another process. A case must not fail because of
        # those before it.
        if time.process_time() > cpu_s / 2:
            break
    os._exit(0)


def _call(
    scope: dict[str, Any],
    function: str,
    class_name: str | None,
    given: dict[int | str, Any],
    result: int | str | None,
    nodes: dict[str, str],
) -> list[Any]:
    """Call a function with arguments by position and by name. ``result``: the argument that is the
    result."""
    owner = class_name or function
    if owner not in scope:
        return ["missing", owner]
    target = scope[owner]
    if class_name:
        instance = target()
        target = getattr(instance, function, None)
        if target is None:
            return ["missing", f"{class_name}.{function}"]
    args = [value for name, value in given.items() if type(name) is int]
    kwargs = {name: value for name, value in given.items() if type(name) is str}
    value = target(*args, **kwargs)
    if result is not None:
        value = given[result]
    return ["value", _plain(value, nodes.get("return" if result is None else str(result)))]


def _operate(
    scope: dict[str, Any],
    operations: list[str],
    args: list[list[Any]],
    no_result: list[str],
    nodes: dict[str, str],
) -> list[Any]:
    """Construct an object of the class that the first operation names, and call the other operations on
    it."""
    class_name = operations[0]
    if class_name not in scope:
        return ["missing", class_name]
    if nodes:
        args = [
            [build(nodes.get(f"{name}.{place}"), value, scope) for place, value in enumerate(values)]
            for name, values in zip(operations, args, strict=True)
        ]
    instance = scope[class_name](*args[0])
    returned = [encode(None)]
    for name, arguments in zip(operations[1:], args[1:], strict=True):
        method = getattr(instance, name, None)
        if method is None:
            return ["missing", f"{class_name}.{name}"]
        value = method(*arguments)
        if name in no_result:
            value = None
        # Encode the value now, because a later operation may change the object that this one returned.
        returned.append(encode(_plain(value, nodes.get(f"{name}.return")), max_bytes=MAX_BYTES))
    return ["values", returned]


def _plain(value: Any, form: str | None) -> Any:
    return _materialise(value) if form is None else reduce(form, value)


def _materialise(value: Any) -> Any:
    """Return the items of an iterator (generator, map, zip, dict view) as a list; other values unchanged."""
    kind = type(value)
    view = kind in (type({}.keys()), type({}.values()), type({}.items()))
    if not view and (not hasattr(kind, "__next__") or not hasattr(kind, "__iter__")):
        return value
    items = list(islice(iter(value), MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise NotInert(f"an iterator of more than {MAX_ITEMS} items")
    return items


def _collect_names() -> dict[str, object]:
    names: dict[str, object] = {}
    for module in _STAR_MODULES:
        found = importlib.import_module(module)
        own = [name for name in vars(found) if name[:1] != "_"]
        public: list[str] = getattr(found, "__all__", None) or own
        # Builtins keep their meaning (operator.pow, re.compile).
        names.update({name: getattr(found, name) for name in public if not hasattr(builtins, name)})
    # A module wins over a member of the same name: `bisect.bisect_left`, `copy.deepcopy`, `datetime.date`.
    names.update({module: importlib.import_module(module) for module in _MODULES})
    return names


# Collected once, before programs are forked.
_PRELUDE = _collect_names()
# A program that uses one of these may find names by their text.
_FINDERS = frozenset(
    {"eval", "exec", "globals", "locals", "vars", "dir", "compile", "__import__", "get_type_hints"}
)


def _prelude_names(used: Collection[str], tested: str) -> dict[str, object]:
    """Return the names for the globals of a program, with their objects.

    used: the names in its code. Each name writes to the memory of its object, so unused ones would cost time.
    tested: the tested function or class, which the program must define itself.
    """
    wanted = _PRELUDE if _FINDERS.intersection(used) else _PRELUDE.keys() & used
    return {name: _PRELUDE[name] for name in wanted if name != tested}
