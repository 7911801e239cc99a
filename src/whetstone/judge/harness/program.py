"""Inside the locked child: hold a program whose functions another process tests.

No test code and no expected value ever comes here: only calls, by value. The program may read or
write the link itself; all it can send is values, which the other process does not trust.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import os
import sys
from collections.abc import Callable
from io import StringIO
from types import MethodType, ModuleType
from typing import Any, cast

from whetstone.judge.harness.containers import KEPT, Held
from whetstone.judge.harness.files import SharedFiles, respelled
from whetstone.judge.harness.foreign import TestObject, number_of, stand_in
from whetstone.judge.harness.held import HeldContainers
from whetstone.judge.harness.library import describe_object, read_array, read_element, read_path
from whetstone.judge.harness.link import RAISED, RETURNED, Link, LinkLost, Reference
from whetstone.judge.harness.loading import (
    CompileFailure,
    describe,
    load_program,
    write_all,
)
from whetstone.judge.harness.operations import OPERATIONS
from whetstone.judge.harness.records import describe_record, has_more_than_fields, read_record
from whetstone.judge.values import NotInert, WireError, encode, record_fields

_MAX_TOLD = 256
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
    except CompileFailure as failure:
        write_all(result_fd, failure.answer())
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
        self.told: dict[int, tuple[int, BaseException]] = {}
        """What functions of the test raised lately, and its number there: let through, it is the same."""
        self.held = HeldContainers()
        self.files = SharedFiles(os.getcwd(), ("main.py",), None)
        self.other_root = self.files.root
        self.output: StringIO | None = None

    def serve(self, message: list[Any]) -> list[Any]:
        """Do what the test's process asks for, after what the test did to the program's containers."""
        if message[0] == "synced":
            _, told, *message = message
            for changes in told:
                self.held.apply(*self.link.read(changes))
        if self.held:
            message = self.held.placed(message)
        if self.other_root == self.files.root:
            reply = self._operate(message)
        else:  # what is a path in the test's directory is one in the program's here
            reply = self._operate(respelled(message, self.other_root, self.files.root))
            reply = respelled(reply, self.files.root, self.other_root)
        return self._with_changes(reply) if self.held else reply

    def _with_changes(self, reply: list[Any]) -> list[Any]:
        """A reply, and after it what became of the containers of which the test holds copies."""
        try:
            changes = self.held.changes()
            return [*reply, encode(changes, self.export)] if any(changes) else reply
        except NotInert as error:
            gone = encode([[], self.held.forget_all()])
            return [RAISED, [None, "TypeError"], [f"{error}, so it cannot be handed over"], {}, None, gone]

    def _operate(self, message: list[Any]) -> list[Any]:
        """Do one operation of the program's; whatever it raises is handed over by value."""
        try:
            operation, *arguments = message
            if operation in _OF_OBJECTS and (operation != "call" or _is_method(arguments[0])):
                # Nothing else here may hold what is returned: see ``described``.
                returned = [
                    self._names(*arguments) if operation == "names" else OPERATIONS[operation](*arguments)
                ]
                return [RETURNED, *self.held.described(returned)]
            if operation == "files":
                return [RETURNED, self._share(*arguments)]
            if operation == "printed":
                return [RETURNED, self._printed()]
            if operation == "seed":
                return [RETURNED, importlib.import_module(arguments[0]).seed(*arguments[1:])]
            if operation == "bases":
                return [RETURNED, [self.number(base) for base in type.mro(arguments[0])]]
            if operation == "state":
                return [RETURNED, self._state(*arguments)]
            if operation == "take":
                return [RETURNED, self._take(*arguments)]
            return [RETURNED, OPERATIONS[operation](*arguments)]
        except LinkLost:
            raise
        except BaseException as error:
            number = self.told[id(error)][0] if id(error) in self.told else None
            return [RAISED, self._exception_class(type(error)), *_exception_content(error), number]

    def export(self, value: object) -> object:
        """What stands for an object that does not cross by value."""
        if isinstance(value, Reference):
            return ["shared", value.number]
        if isinstance(value, Held):
            return ["held", value.number]
        if value is KEPT:
            return ["kept"]
        if id(value) in self.callbacks:
            return ["yours", self.callbacks[id(value)]]
        if isinstance(value, TestObject):
            return ["object_of_yours", number_of(value)]
        if record_fields(type(value)) is not None:
            return self._record(cast("tuple[Any, ...]", value))
        described = describe_object(value)
        if described is not None and described[0] != "element":
            return respelled(described, self.files.root, self.other_root)
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
            case ["callback", int() as number, dict() as labels]:
                return self._callback(number, cast("dict[str, str]", labels))
            case ["import", str() as module, str() as attribute]:
                return operator.attrgetter(attribute)(importlib.import_module(module))
            case ["object", int() as number, name, traits]:
                return self._foreign(number, cast("str", name), cast("tuple[str, ...]", traits))
            case ["record", list() as described, int() as number]:
                return read_record(cast("list[Any]", described), self.objects[number])
            case ["record", list() as described, None]:
                return read_record(cast("list[Any]", described))
            case ["path", bool() as is_concrete, str() as text]:
                return read_path(is_concrete, respelled(text, self.other_root, self.files.root))
            case ["array", str() as dtype, list() as shape, list() as items]:
                return read_array(dtype, cast("list[int]", shape), cast("list[Any]", items))
            case ["element", *parts]:
                return read_element(cast("list[Any]", parts))
            case ["iterator", list() as items]:
                return iter(cast("list[Any]", items))
            case ["shared", int() as number]:
                return shared[number]
            case ["held", int() as number]:
                return Held(number)
            case ["slice", start, stop, step]:
                return slice(start, stop, step)
            case ["kept"]:
                return KEPT
            case _:
                raise WireError("an unknown kind of object")

    def _share(self, root: str, changes: list[Any]) -> list[Any]:
        """Take over what became of the test's files; what became of the program's."""
        self.other_root = root
        self.files.apply(changes)
        return self.files.changes()

    def _printed(self) -> str:
        """What the program printed since it was asked last; from the first time on it is kept here."""
        if self.output is None:
            self.output = sys.stdout = StringIO()
        text = self.output.getvalue()
        self.output.seek(0)
        self.output.truncate()
        return text

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

    def _callback(self, number: int, labels: dict[str, str]) -> Callable[..., Any]:
        def callback(*args: Any, **kwargs: Any) -> Any:
            reply = self.link.request(["call", number, list(args), kwargs])
            if reply[0] == RETURNED:
                return reply[1]
            raise self._raised(reply)

        for name, label in labels.items():
            setattr(callback, name, label)
        self.callbacks[id(callback)] = number
        self.objects.append(callback)  # kept alive: its id names it
        return callback

    def _foreign(self, number: int, name: str, traits: tuple[str, ...]) -> TestObject:
        known = self.foreign.get(number)
        if known is None:
            known = self.foreign[number] = stand_in(self._ask, number, name, traits)
        return known

    def _ask(self, operation: str, number: int, *arguments: Any) -> Any:
        """Have the test's process do something with an object of its own."""
        reply = self.link.request(["object", operation, number, list(arguments)])
        if reply[0] == RETURNED:
            return reply[1]
        raise self._raised(reply)

    def _raised(self, reply: list[Any]) -> BaseException:
        """What a function or an object of the test's raised."""
        _, (_, name), args, _, number = reply
        kind: type[BaseException] = getattr(builtins, name)
        try:
            error = kind(*args)
        except Exception:  # a class that is not built without arguments
            error = kind("", [Exception()]) if issubclass(kind, BaseExceptionGroup) else kind.__new__(kind)
        if number is not None:
            while len(self.told) >= _MAX_TOLD:
                del self.told[next(iter(self.told))]
            self.told[id(error)] = number, error
        return error

    def _exception_class(self, kind: type) -> list[Any]:
        """``[[number, name] of the program's classes, most derived first] or None, builtin base``."""
        own: list[Any] = []
        for base in kind.__mro__:
            if getattr(builtins, base.__name__, None) is base:
                return [own or None, base.__name__]
            own.append([self.number(base), _text(base.__name__)])
        return [None, "Exception"]


# What they give is the program's own state: the test gets copies of its containers that stay joined to them.
_OF_OBJECTS = frozenset({"names", "getattr", "getitem", "items", "call"})


def _is_method(target: Any) -> bool:
    """Whether a call's target is a method of an object, whose state it may hand out."""
    return type(target) is MethodType and not isinstance(target.__self__, type)


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
    if isinstance(error, OSError) and len(args) == 2 and error.filename is not None:
        args.append(_plain(error.filename))  # which its arguments leave out
    attributes = {key: _plain(value) for key, value in getattr(error, "__dict__", {}).items()}
    return [args, {key: value for key, value in attributes.items() if type(key) is str and key[:1] != "_"}]


def _plain(value: object) -> object:
    try:
        encode(value)
    except NotInert:
        return describe(value) if isinstance(value, BaseException) else type(value).__name__
    return value
