"""In the test process: the program in the other process, and the objects that cross between the two.

Plain values cross by value, named tuples as tuples with names. The program's objects become handles here, and
objects and functions of the test become proxies there. ``docs/rpc.md`` describes the protocol.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from types import FunctionType
from typing import Any, TextIO, cast

from whetstone.judge.plain_forms import record_fields
from whetstone.judge.rpc.client_containers import ClientContainers
from whetstone.judge.rpc.compiling import TestCodeError
from whetstone.judge.rpc.containers import KEPT, ContainerReference
from whetstone.judge.rpc.exceptions import Exceptions
from whetstone.judge.rpc.files import SharedFiles
from whetstone.judge.rpc.library import (
    Array,
    describe_object,
    describe_record,
    read_path,
    read_record,
    read_shape,
)
from whetstone.judge.rpc.library_values import Unavailable, read_value, read_zone
from whetstone.judge.rpc.link import RETURNED, LinkLost, Reference, RpcLink
from whetstone.judge.rpc.object_proxies import (
    RECORD_CLASSES,
    CallableHandle,
    ClassHandle,
    Handle,
    IteratorHandle,
    NamedTupleProxy,
    classes_of,
    number_of,
)
from whetstone.judge.rpc.operations import MAX_ITEMS
from whetstone.judge.rpc.program import PLAIN_TYPES
from whetstone.judge.rpc.program_messages import ProgramMessages, without_addresses
from whetstone.judge.rpc.test_objects import TestObjects
from whetstone.judge.values import NotInert, WireError

_TYPES = {kind.__name__: kind for kind in PLAIN_TYPES}
_MAX_RECORD_CLASSES = 1000


class _NoPlainForm(NotInert):
    """A value of the test whose type does not cross."""


class Peer:
    """The program, as seen from the test process."""

    def __init__(self, link_fd: int, module: str) -> None:
        """``module`` is the ``__module__`` of classes that the test code defines."""
        self.messages = ProgramMessages()
        self.link = RpcLink(
            link_fd, self.export, self.resolve, self.serve, without_addresses, self.messages.add
        )
        self.handles: dict[int, Handle] = {}
        self.exceptions = Exceptions()
        self.records: dict[tuple[Any, ...], type[tuple[Any, ...]]] = {}
        self.callbacks: list[Callable[..., Any]] = []
        self._callback_numbers: dict[int, int] = {}
        self.caught: AssertionError | None = None
        """A failed assertion in a function of the test. The program may have caught it."""
        self.test_objects = TestObjects(module)
        self._repeated: dict[int, bool] = {}
        """The numbers of objects that the program sent, and whether it sent them more than once."""
        self._constructed: set[int] = set()
        self._classes: set[int] = set()
        self.copies = ClientContainers()
        self.files: SharedFiles | None = None
        """The directory to share with the program, if the test uses files."""
        self.output: TextIO | None = None
        """The original standard output, if the test captures output."""
        self.tested: set[int] = set()
        self.comparing = 0
        self._is_untouched = False
        """Whether the program had no way yet to send data to the test."""
        self.strained = False
        """Whether more than plain values crossed, so that the proxy itself may have made the test fail."""
        self.request_count = 0
        """The number of requests to the program for this unit."""
        self.on_request: Callable[[BaseException | None], None] = _ignore
        """Called before each request with the exception in flight or None, so that a failure is recorded
        before the program can learn of it."""

    def begin_unit(self) -> None:
        """Begin another unit of the tests, and forget the exceptions of the previous one."""
        self.exceptions.reset()
        self.caught = None
        self.request_count = 0

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Let the program do an operation. Returns its value, or raises the exception that it raised."""
        self.request_count += 1
        self.on_request(sys.exception())
        if self.files is None and self.output is None:
            return self._ask(operation, *arguments)
        if self.files is not None:
            self.files.add_named_paths(list(arguments))
            self._exchange_files(self.files)
        try:
            answer, raised = self._ask(operation, *arguments), None
        except Exception as error:
            answer, raised = None, error
        if self.files is not None:
            self._exchange_files(self.files)
        if self.output is not None:
            self.fetch_output()
        if raised is not None:
            raise raised
        return answer

    def fetch_output(self) -> None:
        """Write what the program printed to standard output, if the test has replaced that to capture it."""
        printed = self._ask("printed")
        if type(printed) is str and printed and sys.stdout is not self.output:
            sys.stdout.write(printed)

    def _exchange_files(self, files: SharedFiles) -> None:
        """Exchange changed files, so that both directories have the same ones."""
        try:
            files.apply(self._ask("files", files.root, files.changes()))
        except WireError as error:
            raise self.break_link(str(error)) from None

    def _ask(self, operation: str, *arguments: Any) -> Any:
        caught = self.caught
        try:
            message = [operation, *self.copies.with_references(operation, arguments)]
            changes = self.copies.outgoing(self.export)
            reply = self.link.request(["synced", changes, *message] if changes else message)
        except NotInert as error:
            self.strained = True
            self.request_count -= 1
            reason = f"{error}, so it cannot be given to the program"
            # The program has sent only functions and classes. So the test alone is the cause, and no program
            # can pass it.
            if isinstance(error, _NoPlainForm) and self.request_count == 1 and self._is_untouched:
                raise TestCodeError(reason) from None
            raise TypeError(reason) from None
        self.copies.mark_delivered()
        match self._resolve_reply(reply):
            case ["returned", value]:
                return value
            case ["raised", *description]:
                error = self._read_exception(operation, description)
                # The failed assertion reaches the test, so the program did not catch it.
                if isinstance(error, AssertionError):
                    self.caught = caught
                raise error
            case _:
                raise self.link.break_link("a malformed reply")

    def _resolve_reply(self, reply: list[Any]) -> list[Any]:
        """Apply the changes of containers in a reply, and return it with its references resolved."""
        try:
            if len(reply) > 2 and type(reply[-1]) is bytes:
                self.copies.receive(self.link.read(reply.pop()))
            return self.copies.resolve(reply)
        except WireError as error:
            raise self.break_link(str(error)) from None

    def _read_exception(self, operation: str, description: list[Any]) -> BaseException:
        try:
            return self.exceptions.read(operation, description)
        except WireError as error:
            raise self.break_link(str(error)) from None

    def fetch_names(self, wanted: list[str], classes: list[str]) -> dict[str, Any]:
        """Return the program's globals with these names, as far as they exist. Classes among them are tested.

        ``classes`` are the names that the problem uses as classes.
        """
        # A tuple, because the program may change a list that is an argument of a request.
        found = self.ask("names", tuple(wanted))
        if type(found) is not dict:
            raise self.break_link("malformed names")
        # Only the requested names: a program must not add names of its choice to the test's globals.
        answer = cast("dict[Any, Any]", found)
        named = {name: answer[name] for name in wanted if name in answer}
        self._is_untouched = (
            self.files is None
            and self.output is None
            and all(isinstance(value, Handle) for value in named.values())
        )
        found = {name: number_of(value) for name, value in named.items() if type(value) is ClassHandle}
        self.tested = set(found.values())
        # Only names that the problem uses as classes: the program could define a class where the problem asks
        # for a function. See ``is_constructed_by_test``.
        self._classes = {found[name] for name in classes if name in found}
        # Every test needs the names, so they do not count as strain.
        self.strained = False
        return named

    def record_construction(self, kind: int, number: int) -> None:
        """Record that the test called the program's class ``kind``, and got this object."""
        if kind in self._classes and not self._repeated.get(number, True):
            self._constructed.add(number)

    def is_constructed_by_test(self, number: int) -> bool:
        """Return whether the test got it only by calling a class that the problem asks for."""
        return number in self._constructed and not self._repeated[number]

    def break_link(self, reason: str) -> LinkLost:
        """End the link, and return the exception with the reason."""
        return self.link.break_link(reason)

    def export(self, value: object) -> object:
        """Return the name that is sent for an object of the test."""
        if isinstance(value, Reference):
            return ["shared", value.number]
        if isinstance(value, ContainerReference):
            return ["held", value.number]
        if value is KEPT:
            return ["kept"]
        if isinstance(value, slice):
            return ["slice", value.start, value.stop, value.step]
        if isinstance(value, Handle):
            return ["yours", number_of(value)]
        fields = record_fields(type(value))
        if fields is not None:
            classes = classes_of(value)
            described = describe_record(cast("tuple[Any, ...]", value))
            return ["record", described, classes[0] if classes else None]
        self.strained = True
        for number, kind in self.exceptions.classes.items():
            if value is kind:
                return ["yours", number]
        imported = _importable(value)
        if imported is not None:
            return imported
        described = describe_object(value)
        if described is not None:
            return described
        if isinstance(value, Iterator) and not callable(value):
            items = list(islice(cast("Iterator[Any]", value), MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise NotInert(f"an iterator of more than {MAX_ITEMS} items")
            return ["iterator", items]
        if self.test_objects.owns(value):
            return ["object", *self.test_objects.describe(value)]
        if callable(value):
            known = self._callback_numbers.get(id(value))
            if known is None:
                known = self._callback_numbers[id(value)] = len(self.callbacks)
                self.callbacks.append(value)
            return ["callback", known, _labels(value)]
        reason = f"a value of type {type(value).__name__}, which has no plain form"
        # A container is only exported if it is nested too deeply, which a value of the program may cause.
        raise NotInert(reason) if type(value) in PLAIN_TYPES else _NoPlainForm(reason)

    def resolve(self, name: object, shared: list[Any]) -> object:
        """Return the object for a name that the program sent. Every part of the name is checked."""
        match name:
            case [
                "object",
                int() as number,
                [bool(), bool(), bool()] as flags,
                list() as classes,
                dict() as labels,
            ]:
                return self._handle(
                    number,
                    cast("list[bool]", flags),
                    cast("list[Any]", classes),
                    cast("dict[Any, Any]", labels),
                )
            case ["object_of_yours", int() as number]:
                return self.test_objects.object(number)
            case ["record", list() as described, list() as classes, (int() | None) as number]:
                return self._record(cast("list[Any]", described), cast("list[Any]", classes), number)
            case ["type", str() as label] if label in _TYPES:
                return _TYPES[label]
            case ["exception", [chain, str() as base]]:
                return self.exceptions.class_for(chain, base)
            case ["yours", int() as number] if 0 <= number < len(self.callbacks):
                return self.callbacks[number]
            case ["shared", int() as number] if 0 <= number < len(shared):
                return shared[number]
            case ["path", bool() as is_concrete, str() as text]:
                return read_path(is_concrete, text)
            case ["array", str(), list() as shape, list() as items]:
                self.strained = True
                return Array(read_shape(shape), items)
            case ["value", str() as tag, list() as parts, fallback]:
                self.strained = True
                try:
                    return read_value(tag, cast("list[Any]", parts))
                except Unavailable:
                    return self.resolve(fallback, shared)
            case ["zone", str() as key]:
                return read_zone(key)
            case ["slice", start, stop, step]:
                return slice(start, stop, step)
            case ["held", int() as number]:
                return self.copies.register(number)
            case ["kept"] if self.link.in_changes:
                return KEPT
            case _:
                raise WireError("an unknown kind of object")

    def serve(self, message: list[Any]) -> list[Any]:
        """Serve a request of the program: to call a function or use an object that the test passed to it."""
        match message:
            case ["object", str() as operation, int() as number, list() as arguments]:
                values = cast("list[Any]", arguments)
                return self._run_for_program(lambda: self.test_objects.operate(operation, number, values))
            case ["call", int() as number, list() as args, dict() as kwargs] if (
                0 <= number < len(self.callbacks)
            ):
                function = self.callbacks[number]
                return self._run_for_program(lambda: function(*args, **cast("dict[str, Any]", kwargs)))
            case _:
                raise self.link.break_link("an unknown request")

    def _run_for_program(self, act: Callable[[], Any]) -> list[Any]:
        try:
            return [RETURNED, act()]
        except LinkLost:
            raise
        except WireError as error:
            raise self.break_link(str(error)) from None
        except BaseException as error:
            if isinstance(error, AssertionError) and not self.exceptions.is_from_program(error):
                # The failure counts even if the program catches it. Otherwise the program could try several
                # answers until no assertion fails.
                self.caught = self.caught or error
                self.on_request(error)
            return self.exceptions.describe(error)

    def _record(self, described: list[Any], classes: list[Any], number: int | None) -> object:
        """Return a named tuple of the program, as an instance of a class created here for its classes."""
        if not all(type(entry) is int for entry in classes):
            raise WireError("malformed classes")
        name, fields, _ = (*described, None, None, None)[:3]
        key = (name, tuple(cast("list[Any]", fields)) if type(fields) is list else (), tuple(classes))
        kind = self.records.get(key)
        if kind is None:
            if len(self.records) >= _MAX_RECORD_CLASSES:
                raise WireError("too many classes")
            base = type(read_record(described))
            kind = self.records[key] = type(
                base.__name__, (base, NamedTupleProxy), {RECORD_CLASSES: tuple(classes)}
            )
        record = read_record(described, kind)
        if number is not None:
            record.__dict__["_handle"] = self._handle(number, [False, False, False], classes, {})
        return record

    def _handle(self, number: int, flags: list[bool], classes: list[Any], labels: dict[Any, Any]) -> Handle:
        self._repeated[number] = number in self._repeated
        known = self.handles.get(number)
        if known is not None:
            return known
        if not all(type(entry) is int for entry in classes):
            raise WireError("malformed classes")
        self.strained = True
        is_callable, is_class, is_iterator = flags
        kind = ClassHandle if is_class else CallableHandle if is_callable else Handle
        if is_iterator and not is_callable:
            kind = IteratorHandle
        plain = {k: v for k, v in labels.items() if type(k) is str and type(v) is str}
        handle = kind(self, number, tuple(classes), plain)
        self.handles[number] = handle
        return handle


def _ignore(_: BaseException | None) -> None:
    """Do nothing with a failure."""


def _labels(function: object) -> dict[str, str]:
    """Return the attributes of a test function that ``functools.wraps`` would copy."""
    if not isinstance(function, FunctionType):
        return {}
    labels = {name: getattr(function, name) for name in ("__name__", "__qualname__", "__doc__")}
    return {name: label for name, label in labels.items() if type(label) is str}


def _importable(value: Any) -> list[str] | None:
    """Return the name to import a function or class of the standard library by; None for anything else."""
    if getattr(value, "__objclass__", None) in PLAIN_TYPES:
        # If a method such as str.format ran here on an argument of the program, it could read the test.
        return ["import", "builtins", value.__qualname__]
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if type(module) is not str or type(name) is not str or not callable(value):
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    return ["import", module, name] if getattr(sys.modules.get(module), name, None) is value else None
