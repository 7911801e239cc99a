"""Inside the locked child: hold a program whose functions another process tests.

No test code and no expected value ever comes here: only calls, by value. The program may read or
write the link itself; all it can send is values, which the other process does not trust.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import os
from collections.abc import Callable
from itertools import islice
from types import ModuleType
from typing import Any, cast

from whetstone.judge.harness.foreign import TestObject, number_of
from whetstone.judge.harness.link import RAISED, RETURNED, Link, LinkLost, Reference
from whetstone.judge.harness.loading import (
    COMPILE_ERROR,
    CompileFailure,
    describe,
    load_program,
    write_all,
)
from whetstone.judge.harness.records import describe_record, has_more_than_fields, read_record
from whetstone.judge.values import NotInert, WireError, encode, record_fields

MAX_ITEMS = 1_000_000
PLAIN_TYPES = (
    int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, type(None),
)  # fmt: skip


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, greet, and serve until the testing process closes the link."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    holder = Holder(link_fd)
    try:
        _serve(holder, payload.decode("utf-8", "surrogatepass"))
    except CompileFailure:
        write_all(result_fd, COMPILE_ERROR)
    except LinkLost:
        pass  # the test is over
    # Nobody waits for what the program would still do: its exit handlers, its threads.
    os._exit(0)


def _serve(holder: Holder, source: str) -> None:
    try:
        holder.scope = load_program(source)
    except CompileFailure:
        raise
    except BaseException as error:
        holder.link.send_greeting(["failed", describe(error)])
        return
    holder.link.send_greeting(["loaded"])
    holder.link.serve_forever()


class Holder:
    """The program's objects that the testing process knows by number, and the operations on them."""

    def __init__(self, link_fd: int) -> None:
        self.scope: dict[str, Any] = {}
        self.link = Link(link_fd, self.export, self.resolve, self.serve)
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.callbacks: dict[int, Any] = {}
        self.foreign: dict[int, TestObject] = {}
        self.failed: dict[int, BaseException] = {}

    def serve(self, message: list[Any]) -> list[Any]:
        """Do one operation of the program's; whatever it raises is handed over by value."""
        try:
            operation, *arguments = message
            if operation == "names":
                return [RETURNED, self._names(*arguments)]
            if operation == "state":
                return [RETURNED, self._state(*arguments)]
            if operation == "take":
                return [RETURNED, self._take(*arguments)]
            return [RETURNED, _OPERATIONS[operation](*arguments)]
        except LinkLost:
            raise
        except BaseException as error:
            return [RAISED, self._exception_class(type(error)), *_exception_content(error)]

    def export(self, value: object) -> object:
        """What stands for an object that does not cross by value."""
        if isinstance(value, Reference):
            return ["shared", value.number]
        if id(value) in self.callbacks:
            return ["yours", self.callbacks[id(value)]]
        if type(value) is TestObject:
            return ["object_of_yours", number_of(value)]
        if record_fields(type(value)) is not None:
            return self._record(cast("tuple[Any, ...]", value))
        if any(value is kind for kind in PLAIN_TYPES):
            return ["type", cast("type", value).__name__]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", self._exception_class(value)]
        kind = type(value)
        flags = [callable(value), isinstance(value, type), hasattr(kind, "__next__")]
        classes = [self.number(base) for base in type.mro(kind)[:-1]]
        return ["object", self.number(value), flags, classes, _labels(value)]

    def _record(self, value: tuple[Any, ...]) -> object:
        """A named tuple by value; with its number, for what it has besides fields."""
        kind = type(value)
        own = self.number(value) if has_more_than_fields(kind) else None
        classes = [self.number(base) for base in type.mro(kind)[:-1] if base is not tuple]
        return ["record", describe_record(value), classes, own]

    def number(self, value: object) -> int:
        """The number by which the testing process names an object; the same object, the same number."""
        known = self.numbers.get(id(value))
        if known is None:
            known = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return known

    def resolve(self, name: object, shared: list[Any]) -> object:
        """The object behind a name that the testing process sent."""
        match name:
            case ["yours", int() as number]:
                return self.objects[number]
            case ["callback", int() as number]:
                return self._callback(number)
            case ["import", str() as module, str() as attribute]:
                return operator.attrgetter(attribute)(importlib.import_module(module))
            case ["object", int() as number]:
                return self._foreign(number)
            case ["record", list() as described, int() as number]:
                return read_record(cast("list[Any]", described), self.objects[number])
            case ["record", list() as described, None]:
                return read_record(cast("list[Any]", described))
            case ["iterator", list() as items]:
                return iter(cast("list[Any]", items))
            case ["shared", int() as number]:
                return shared[number]
            case _:
                raise WireError("an unknown kind of object")

    def _names(self, names: list[str]) -> dict[str, Any]:
        """The program's globals of these names. Modules are left out: the test imports its own."""
        found = {name: self.scope[name] for name in names if name in self.scope}
        return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}

    def _take(self, target: Any, count: int) -> list[Any]:
        """``[items, ended]``: up to ``count`` next items. What it raises after some, the next call raises."""
        failed = self.failed.pop(id(target), None)
        if failed is not None:
            raise failed
        items: list[Any] = []
        try:
            while len(items) < count:
                items.append(next(target))
        except StopIteration:
            return [items, True]
        except BaseException as error:
            if not items:
                raise
            self.failed[id(target)] = error
        return [items, False]

    def _state(self, target: Any) -> list[Any] | None:
        """Class and attributes of an instance whose class defines equality; None for any other."""
        kind = type(target)
        if kind.__eq__ is object.__eq__:
            return None
        state = dict(getattr(target, "__dict__", {}))
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(target, slot):
                    state[slot] = getattr(target, slot)
        return [self.number(kind), state]

    def _callback(self, number: int) -> Callable[..., Any]:
        def callback(*args: Any, **kwargs: Any) -> Any:
            reply = self.link.request(["call", number, list(args), kwargs])
            if reply[0] == RETURNED:
                return reply[1]
            raise _builtin_exception(reply[1])(*reply[2])

        self.callbacks[id(callback)] = number
        self.objects.append(callback)  # kept alive: its id names it
        return callback

    def _foreign(self, number: int) -> TestObject:
        known = self.foreign.get(number)
        if known is None:
            known = self.foreign[number] = TestObject(self._ask, number)
        return known

    def _ask(self, operation: str, number: int, *arguments: Any) -> Any:
        """Have the test's process do something with an object of its own."""
        reply = self.link.request(["object", operation, number, list(arguments)])
        if reply[0] == RETURNED:
            return reply[1]
        raise _builtin_exception(reply[1])(*reply[2])

    def _exception_class(self, kind: type) -> list[Any]:
        """``[[number, name] of the program's classes, most derived first] or None, builtin base``."""
        own: list[Any] = []
        for base in kind.__mro__:
            if getattr(builtins, base.__name__, None) is base:
                return [own or None, base.__name__]
            own.append([self.number(base), _text(base.__name__)])
        return [None, "Exception"]


def _call(target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return target(*args, **kwargs)


def _items(target: Any) -> list[Any]:
    items = list(islice(iter(target), MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise OverflowError(f"more than {MAX_ITEMS} items")
    return items


def _enter(target: Any) -> Any:
    return type(target).__enter__(target)


def _exit(target: Any) -> None:
    type(target).__exit__(target, None, None, None)


def _ping(nonce: bytes) -> bytes:
    return nonce


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "items": _items,
    "next": next,
    "enter": _enter,
    "exit": _exit,
    "ping": _ping,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "matmul": operator.matmul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _text(value: object) -> str:
    return value[:200] if type(value) is str else ""


def _labels(value: Any) -> dict[str, str]:
    """The names that a test may read from a function or class without asking again."""
    labels = {
        name: getattr(value, name, None) for name in ("__name__", "__qualname__", "__doc__", "__module__")
    }
    return {name: label for name, label in labels.items() if type(label) is str}


def _exception_content(error: BaseException) -> list[Any]:
    """Arguments and attributes of an exception, as far as they cross by value."""
    args = [_plain(argument) for argument in error.args]
    attributes = {key: _plain(value) for key, value in getattr(error, "__dict__", {}).items()}
    return [args, {key: value for key, value in attributes.items() if type(key) is str and key[:1] != "_"}]


def _plain(value: object) -> object:
    try:
        encode(value)
    except NotInert:
        return describe(value) if isinstance(value, BaseException) else type(value).__name__
    return value


def _builtin_exception(description: Any) -> type[BaseException]:
    kind = getattr(builtins, description[1], Exception)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else Exception
