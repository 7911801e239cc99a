"""In the testing process: the program in the other process, and what crosses between the two.

Values cross as they are, named tuples as tuples with names; objects of the program's become handles here,
and objects and functions of the test's become stand-ins there.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from whetstone.judge.harness.handles import (
    RECORD_CLASSES,
    CallableHandle,
    ClassHandle,
    Handle,
    IteratorHandle,
    Record,
    classes_of,
    number_of,
)
from whetstone.judge.harness.link import RAISED, RETURNED, Link, LinkLost, Reference
from whetstone.judge.harness.own_objects import OwnObjects
from whetstone.judge.harness.program import MAX_ITEMS, PLAIN_TYPES
from whetstone.judge.harness.records import describe_record, read_record
from whetstone.judge.values import NotInert, WireError, record_fields

_TYPES = {kind.__name__: kind for kind in PLAIN_TYPES}
# Raised by a *call*, these would silently end a loop of the test and so skip its assertions.
_LOOP_ENDERS = (StopIteration, StopAsyncIteration, GeneratorExit)
_CATCH_ALL = (BaseException, Exception)


class Peer:
    """The program, as the testing process sees it."""

    def __init__(self, link_fd: int, module: str) -> None:
        """``module`` is where classes of the test code say that they were defined."""
        self.link = Link(link_fd, self.export, self.resolve, self.serve)
        self.handles: dict[int, Handle] = {}
        self.classes: dict[int, type[BaseException]] = {}
        self.records: dict[tuple[Any, ...], type[tuple[Any, ...]]] = {}
        self.callbacks: list[Callable[..., Any]] = []
        self.raised: list[BaseException] = []
        self.caught: AssertionError | None = None
        """A failed assertion of a function of the test's, which the program did not let through."""
        self.own = OwnObjects(module)
        self.tested: set[int] = set()
        self.comparing = 0
        self.strained = False
        """More than values had to cross: the proxy itself may be why a test fails."""

    def begin_anew(self) -> None:
        """Another unit of the tests begins: what was raised and caught so far does not concern it."""
        self.raised.clear()
        self.caught = None

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Have the program do something; return its value or raise what it raised."""
        try:
            reply = self.link.request([operation, *arguments])
        except NotInert as error:
            self.strained = True
            raise TypeError(f"{error}, so it cannot be given to the program") from None
        match reply:
            case ["returned", value]:
                return value
            case ["raised", [chain, str() as base], list() as args, dict() as attributes]:
                error = self._exception(
                    chain, base, cast("list[Any]", args), cast("dict[Any, Any]", attributes)
                )
                if operation != "next" and isinstance(error, _LOOP_ENDERS):
                    error = RuntimeError(f"the program raised {type(error).__name__}")
                self.raised.append(error)
                if isinstance(error, AssertionError):
                    self.caught = None  # now the test knows of it
                raise error
            case _:
                raise self.link.lose("a malformed reply")

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """The program's globals of these names, where it has them. Classes among them are what is tested."""
        # A tuple: a list in a request would be brought to what the program says it made of it.
        found = self.ask("names", tuple(wanted))
        if type(found) is not dict:
            raise self.lose("malformed names")
        # Only what was asked for: a program must not put names of its choice into the test's globals.
        answered = cast("dict[Any, Any]", found)
        named = {name: answered[name] for name in wanted if name in answered}
        self.tested = {number_of(value) for value in named.values() if type(value) is ClassHandle}
        self.strained = False  # what the test asks for by name strains nothing
        return named

    def lose(self, reason: str) -> LinkLost:
        """Give the program up for good, and return the exception that says why."""
        return self.link.lose(reason)

    def export(self, value: object) -> object:
        """What stands for an object of the test in the program's process."""
        if isinstance(value, Reference):
            return ["shared", value.number]
        if isinstance(value, Handle):
            return ["yours", number_of(value)]
        fields = record_fields(type(value))
        if fields is not None:
            return self._export_record(cast("tuple[Any, ...]", value))
        self.strained = True
        for number, kind in self.classes.items():
            if value is kind:
                return ["yours", number]
        imported = _importable(value)
        if imported is not None:
            return imported
        if isinstance(value, Iterator):
            items = list(islice(cast("Iterator[Any]", value), MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise NotInert(f"an iterator of more than {MAX_ITEMS} items")
            return ["iterator", items]
        if self.own.owns(value):
            return ["object", self.own.number(value)]
        if callable(value):
            self.callbacks.append(value)
            return ["callback", len(self.callbacks) - 1]
        raise NotInert(f"a value of type {type(value).__name__}, which has no plain form")

    def resolve(self, name: object, shared: list[Any]) -> object:
        """The stand-in for what the program named. Its claims are checked one by one."""
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
                return self.own.object(number)
            case ["record", list() as described, list() as classes, (int() | None) as number]:
                return self._record(cast("list[Any]", described), cast("list[Any]", classes), number)
            case ["type", str() as label] if label in _TYPES:
                return _TYPES[label]
            case ["exception", [chain, str() as base]]:
                return self._exception_class(chain, base)
            case ["yours", int() as number] if 0 <= number < len(self.callbacks):
                return self.callbacks[number]
            case ["shared", int() as number] if 0 <= number < len(shared):
                return shared[number]
            case _:
                raise WireError("an unknown kind of object")

    def serve(self, message: list[Any]) -> list[Any]:
        """What a program may ask: to call a function, or use an object, that the test handed to it."""
        match message:
            case ["object", str() as operation, int() as number, list() as arguments]:
                return self._do(operation, number, cast("list[Any]", arguments))
            case ["call", int() as number, list() as args, dict() as kwargs] if (
                0 <= number < len(self.callbacks)
            ):
                try:
                    return [RETURNED, self.callbacks[number](*args, **cast("dict[str, Any]", kwargs))]
                except Exception as error:
                    return self._told(error)
            case _:
                raise self.link.lose("an unknown request")

    def _do(self, operation: str, number: int, arguments: list[Any]) -> list[Any]:
        try:
            return [RETURNED, self.own.do(operation, number, arguments)]
        except WireError as error:
            raise self.lose(str(error)) from None
        except Exception as error:
            return self._told(error)

    def _told(self, error: Exception) -> list[Any]:
        """What the program gets to know of an exception of the test's."""
        if isinstance(error, AssertionError):
            # It stands whatever the program does with it: else this would be an oracle to guess
            # against. Its text, which often holds the right value, stays here.
            self.caught = self.caught or error
            return [RAISED, [None, "AssertionError"], [], {}]
        return [RAISED, [None, _builtin_base(type(error))], [str(error)], {}]

    def _export_record(self, value: tuple[Any, ...]) -> object:
        classes = classes_of(value)
        return ["record", describe_record(value), classes[0] if classes else None]

    def _record(self, described: list[Any], classes: list[Any], number: int | None) -> object:
        """A named tuple of the program's: ours, but an instance of the classes that it names."""
        if not all(type(entry) is int for entry in classes):
            raise WireError("malformed classes")
        name, fields, _ = (*described, None, None, None)[:3]
        key = (name, tuple(cast("list[Any]", fields)) if type(fields) is list else (), tuple(classes))
        kind = self.records.get(key)
        if kind is None:
            base = type(read_record(described))
            kind = self.records[key] = type(base.__name__, (base, Record), {RECORD_CLASSES: tuple(classes)})
        made = read_record(described, kind)
        if number is not None:
            made.__dict__["_handle"] = self._handle(number, [False, False, False], classes, {})
        return made

    def _handle(self, number: int, flags: list[bool], classes: list[Any], labels: dict[Any, Any]) -> Handle:
        known = self.handles.get(number)
        if known is not None:
            return known
        self.strained = True
        is_callable, is_class, is_iterator = flags
        kind = ClassHandle if is_class else CallableHandle if is_callable else Handle
        if is_iterator and not is_callable:
            kind = IteratorHandle
        plain = {k: v for k, v in labels.items() if type(k) is str and type(v) is str}
        handle = kind(self, number, tuple(classes), plain)
        self.handles[number] = handle
        return handle

    def _exception(
        self, chain: object, base: str, args: list[Any], attributes: dict[Any, Any]
    ) -> BaseException:
        kind = self._exception_class(chain, base)
        try:
            error = kind(*args)
        except Exception:
            error = _bare(kind)
        for name, value in attributes.items():
            if type(name) is str and not name.startswith("_"):
                with suppress(AttributeError, TypeError, ValueError):  # not every name takes every value
                    setattr(error, name, value)
        return error

    def _exception_class(self, chain: object, base: str) -> type[BaseException]:
        """The builtin class, or one made for a class of the program's, the same for the same number."""
        made: Any = getattr(builtins, base, None)
        if not (isinstance(made, type) and issubclass(made, BaseException)):
            raise WireError("an unknown exception")
        if made in _CATCH_ALL or issubclass(made, (AssertionError, SystemExit, KeyboardInterrupt)):
            # A subclass, so that `except AssertionError` finds it and the test's own stays apart: also
            # where a program calls `Exception` its own error, which would catch failed assertions.
            made = _FOREIGN[base] = _FOREIGN.get(base) or _subclass(base, made)
        for entry in reversed(cast("list[Any]", chain) if type(chain) is list else []):
            match entry:
                case [int() as number, str() as label]:
                    known = self.classes.get(number)
                    made = known if known is not None else _subclass(label, made)
                    self.classes[number] = made
                case _:
                    raise WireError("a malformed exception")
        return made


_FOREIGN: dict[str, type[BaseException]] = {}


def _bare(kind: type[BaseException]) -> BaseException:
    """An exception of a class whose arguments are unknown."""
    if issubclass(kind, BaseExceptionGroup):  # its members do not cross, and it cannot be empty
        return kind("", [Exception() if issubclass(kind, Exception) else KeyboardInterrupt()])
    return kind.__new__(kind)


def _importable(value: Any) -> list[str] | None:
    """How to import a builtin or standard library function or class; None for anything else."""
    if getattr(value, "__objclass__", None) in PLAIN_TYPES:
        # A method such as str.format: run here, on what the program gives it, it could read the test.
        return ["import", "builtins", value.__qualname__]
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if type(module) is not str or type(name) is not str or not callable(value):
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    return ["import", module, name] if getattr(sys.modules.get(module), name, None) is value else None


def _builtin_base(kind: type) -> str:
    for base in kind.__mro__:
        if getattr(builtins, base.__name__, None) is base:
            return base.__name__
    return "Exception"


def _subclass(label: str, base: type[BaseException]) -> type[BaseException]:
    name = label if label.isidentifier() else "ProgramError"
    return cast("type[BaseException]", type(name, (base,), {}))
