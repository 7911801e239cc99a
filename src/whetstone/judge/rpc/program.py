"""In the program's process: holds the program, and serves the requests of the test process.

No test code and no expected value reaches this process, only calls with arguments by value. The program can
read and write the link itself, but it can send only values, which the test process does not trust.
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

from whetstone.judge.plain_forms import record_fields
from whetstone.judge.rpc.containers import KEPT, ContainerReference
from whetstone.judge.rpc.files import SharedFiles, replace_root
from whetstone.judge.rpc.library import (
    describe_object,
    describe_record,
    has_more_than_fields,
    read_array,
    read_element,
    read_path,
    read_record,
)
from whetstone.judge.rpc.library_values import read_value, read_zone
from whetstone.judge.rpc.link import RAISED, RETURNED, ByName, LinkLost, Reference, RpcLink
from whetstone.judge.rpc.loading import (
    SourceError,
    describe,
    load_program,
    write_all,
)
from whetstone.judge.rpc.operations import OPERATIONS
from whetstone.judge.rpc.server_containers import ServerContainers
from whetstone.judge.rpc.test_class_proxies import TestObject, make_proxy, number_of
from whetstone.judge.values import NotInert, WireError, encode

_MAX_TEST_EXCEPTIONS = 256
PLAIN_TYPES = (
    int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, type(None),
)  # fmt: skip


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, send the greeting, and serve until the test process closes the link."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    holder = ObjectHolder(link_fd)
    try:
        _serve(holder, payload.decode("utf-8", "surrogatepass"))
    except SourceError as failure:
        write_all(result_fd, failure.answer())
    # The test is over.
    except LinkLost:
        pass
    # Exit handlers and threads of the program have no effect on the verdict, so they are not waited for.
    os._exit(0)


def _serve(holder: ObjectHolder, source: str) -> None:
    try:
        holder.scope = load_program(source)
    except SourceError:
        raise
    except BaseException as error:
        holder.link.send_greeting(["failed", describe(error)])
        return
    holder.link.send_greeting(["loaded"])
    holder.link.serve_forever()


class ObjectHolder:
    """The program's objects that the test process knows by number, and the operations on them."""

    def __init__(self, link_fd: int) -> None:
        self.scope: dict[str, Any] = {}
        self.link = RpcLink(link_fd, self.export, self.resolve, self.serve)
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.callbacks: dict[int, Any] = {}
        self.foreign: dict[int, TestObject] = {}
        self.failed: dict[int, BaseException] = {}
        self.test_exceptions: dict[int, tuple[int, BaseException]] = {}
        """The latest exceptions of test functions, with their numbers in the test process.

        If the program lets one through, the number is sent back, so that the test gets the same exception.
        """
        self.containers = ServerContainers()
        self.files = SharedFiles(os.getcwd(), ("main.py",), None)
        self.other_root = self.files.root
        self.output: StringIO | None = None

    def serve(self, message: list[Any]) -> list[Any]:
        """Serve a request of the test process. Changes that the test made to containers are applied first."""
        if message[0] == "synced":
            _, pending, *message = message
            for changes in pending:
                self.containers.apply(*self.link.read(changes))
        if self.containers:
            message = self.containers.resolve(message)
        if self.other_root == self.files.root:
            reply = self._operate(message)
        # A path in the test's directory becomes one in the program's directory, and back.
        else:
            reply = self._operate(replace_root(message, self.other_root, self.files.root))
            reply = replace_root(reply, self.files.root, self.other_root)
        return self._with_changes(reply) if self.containers else reply

    def _with_changes(self, reply: list[Any]) -> list[Any]:
        """Return a reply, followed by the changes of the containers that the test has copies of."""
        try:
            changes = self.containers.changes()
            return [*reply, encode(changes, self.export)] if any(changes) else reply
        except NotInert as error:
            gone = encode([[], self.containers.forget_all()])
            return [RAISED, [None, "TypeError"], [f"{error}, so it cannot be sent"], {}, None, gone]

    def _operate(self, message: list[Any]) -> list[Any]:
        """Do one operation. An exception of the program is returned by value."""
        try:
            operation, *arguments = message
            if operation in _OF_OBJECTS and (operation != "call" or _is_method(arguments[0])):
                # No local variable may reference the value, because ``describe`` counts references.
                returned = [
                    self._names(*arguments) if operation == "names" else OPERATIONS[operation](*arguments)
                ]
                return [RETURNED, *self._describe(returned)]
            if operation == "files":
                return [RETURNED, self._exchange_files(*arguments)]
            if operation == "printed":
                return [RETURNED, self._take_output()]
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
            number = self.test_exceptions[id(error)][0] if id(error) in self.test_exceptions else None
            return [RAISED, self._exception_class(type(error)), *_exception_content(error), number]

    def _describe(self, returned: list[Any]) -> list[Any]:
        try:
            return self.containers.describe(returned)
        except RecursionError:
            return returned

    def export(self, value: object) -> object:
        """Return the name that is sent for an object that does not cross by value."""
        if isinstance(value, ByName):
            return self._object(value.value)
        if isinstance(value, Reference):
            return ["shared", value.number]
        if isinstance(value, ContainerReference):
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
        if described is not None and described[0] == "value":
            # The object as well, in case the test process cannot create the value.
            return [*described, self._object(value)]
        if described is not None and described[0] != "element":
            return replace_root(described, self.files.root, self.other_root)
        if any(value is kind for kind in PLAIN_TYPES):
            return ["type", cast("type", value).__name__]
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", self._exception_class(value)]
        return self._object(value)

    def _object(self, value: object) -> list[Any]:
        kind = type(value)
        flags = [callable(value), isinstance(value, type), hasattr(kind, "__next__")]
        classes = [self.number(base) for base in type.mro(kind)[:-1]]
        return ["object", self.number(value), flags, classes, _labels(value)]

    def _record(self, value: tuple[Any, ...]) -> object:
        """Return a named tuple by value, with its number if it has more attributes than its fields."""
        kind = type(value)
        own = self.number(value) if has_more_than_fields(kind) else None
        classes = [self.number(base) for base in type.mro(kind)[:-1] if base is not tuple]
        return ["record", describe_record(value), classes, own]

    def number(self, value: object) -> int:
        """Return the number by which the test process names an object. An object keeps its number."""
        known = self.numbers.get(id(value))
        if known is None:
            known = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return known

    def resolve(self, name: object, shared: list[Any]) -> object:
        """Return the object for a name that the test process sent."""
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
                return read_path(is_concrete, replace_root(text, self.other_root, self.files.root))
            case ["value", str() as tag, list() as parts]:
                return read_value(tag, cast("list[Any]", parts))
            case ["zone", str() as key]:
                return read_zone(key)
            case ["array", str() as dtype, list() as shape, list() as items]:
                return read_array(dtype, cast("list[int]", shape), cast("list[Any]", items))
            case ["element", *parts]:
                return read_element(cast("list[Any]", parts))
            case ["iterator", list() as items]:
                return iter(cast("list[Any]", items))
            case ["shared", int() as number]:
                return shared[number]
            case ["held", int() as number]:
                return ContainerReference(number)
            case ["slice", start, stop, step]:
                return slice(start, stop, step)
            case ["kept"]:
                return KEPT
            case _:
                raise WireError("an unknown kind of object")

    def _exchange_files(self, root: str, changes: list[Any]) -> list[Any]:
        """Apply the changes of the test's files, and return those of the program's files."""
        self.other_root = root
        self.files.apply(changes)
        return self.files.changes()

    def _take_output(self) -> str:
        """Return what the program printed since the last call. The first call starts to capture output."""
        if self.output is None:
            self.output = sys.stdout = StringIO()
        text = self.output.getvalue()
        self.output.seek(0)
        self.output.truncate()
        return text

    def _names(self, names: list[str]) -> dict[str, Any]:
        """Return the program's globals with these names, without modules, which the test imports itself."""
        found = {name: self.scope[name] for name in names if name in self.scope}
        return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}

    def _take(self, target: Any, count: int) -> list[Any]:
        """Return ``[items, ended]`` with up to ``count`` next items of an iterator.

        An exception after some items is raised by the next call, so that the test gets these items first.
        """
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
        """Return class and attributes of an instance whose class defines equality; None for any other."""
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
            raise self._read_exception(reply)

        for name, label in labels.items():
            setattr(callback, name, label)
        self.callbacks[id(callback)] = number
        self.objects.append(callback)  # keeps it alive, because ``callbacks`` identifies it by its id
        return callback

    def _foreign(self, number: int, name: str, traits: tuple[str, ...]) -> TestObject:
        known = self.foreign.get(number)
        if known is None:
            known = self.foreign[number] = make_proxy(self._ask, number, name, traits)
        return known

    def _ask(self, operation: str, number: int, *arguments: Any) -> Any:
        """Let the test process do an operation on one of its objects."""
        reply = self.link.request(["object", operation, number, list(arguments)])
        if reply[0] == RETURNED:
            return reply[1]
        raise self._read_exception(reply)

    def _read_exception(self, reply: list[Any]) -> BaseException:
        """Return the exception that a function or an object of the test raised."""
        _, (_, name), args, _, number = reply
        kind: type[BaseException] = getattr(builtins, name)
        try:
            error = kind(*args)
        except Exception:  # a class whose constructor requires other arguments
            error = kind("", [Exception()]) if issubclass(kind, BaseExceptionGroup) else kind.__new__(kind)
        if number is not None:
            while len(self.test_exceptions) >= _MAX_TEST_EXCEPTIONS:
                del self.test_exceptions[next(iter(self.test_exceptions))]
            self.test_exceptions[id(error)] = number, error
        return error

    def _exception_class(self, kind: type) -> list[Any]:
        """Return ``[chain, base]``: ``[number, name]`` of the program's own classes, and the builtin base."""
        own: list[Any] = []
        for base in kind.__mro__:
            if getattr(builtins, base.__name__, None) is base:
                return [own or None, base.__name__]
            own.append([self.number(base), _text(base.__name__)])
        return [None, "Exception"]


# Their results are part of the program's state, so the test's copies of containers stay synchronized.
_OF_OBJECTS = frozenset({"names", "getattr", "getitem", "items", "call"})


def _is_method(target: Any) -> bool:
    """Return whether the target is a method of an object, which may return part of the object's state."""
    return type(target) is MethodType and not isinstance(target.__self__, type)


def _text(value: object) -> str:
    return value[:200] if type(value) is str else ""


def _labels(value: Any) -> dict[str, str]:
    """Return the attributes of a function or class that a test can read without another request."""
    labels = {
        name: getattr(value, name, None) for name in ("__name__", "__qualname__", "__doc__", "__module__")
    }
    return {name: label for name, label in labels.items() if type(label) is str}


def _exception_content(error: BaseException) -> list[Any]:
    """Return arguments and attributes of an exception, as far as they cross by value."""
    args = [_plain(argument) for argument in error.args]
    if isinstance(error, OSError) and len(args) == 2 and error.filename is not None:
        args.append(_plain(error.filename))  # ``args`` of an OSError does not contain it
    attributes = {key: _plain(value) for key, value in getattr(error, "__dict__", {}).items()}
    return [args, {key: value for key, value in attributes.items() if type(key) is str and key[:1] != "_"}]


def _plain(value: object) -> object:
    try:
        encode(value)
    except NotInert:
        return describe(value) if isinstance(value, BaseException) else type(value).__name__
    return value
