"""In the testing process: stand-ins for the program's objects.

A handle forwards what only the program can answer (calls, attributes, items, length, iteration,
truth) and gets plain values back. What would let a program decide whether an assertion holds is
decided here and never forwarded: equality, hashing, containment, ordering, arithmetic, ``isinstance``.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from whetstone.judge.harness.link import RAISED, RETURNED, Link, Reference
from whetstone.judge.harness.program import MAX_ITEMS, PLAIN_TYPES
from whetstone.judge.values import NotInert, WireError

_TYPES = {kind.__name__: kind for kind in PLAIN_TYPES}
_FORWARDED_DUNDERS = frozenset({"__dict__", "__annotations__", "__defaults__", "__kwdefaults__"})
_LABELS = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})
# Raised by a *call*, these would silently end a loop of the test and so skip its assertions.
_LOOP_ENDERS = (StopIteration, StopAsyncIteration, GeneratorExit)
_MAX_NESTED_EQUALITY = 50
_ITEMS_PER_ITEM_AHEAD = 8
_CATCH_ALL = (BaseException, Exception)


class Peer:
    """The program, as the testing process sees it."""

    def __init__(self, link_fd: int) -> None:
        self.link = Link(link_fd, self.export, self.resolve, self.serve)
        self.handles: dict[int, Handle] = {}
        self.classes: dict[int, type[BaseException]] = {}
        self.callbacks: list[Callable[..., Any]] = []
        self.raised: list[BaseException] = []
        self.caught: AssertionError | None = None
        """A failed assertion of a function of the test's, which the program did not let through."""
        self.comparing = 0

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Have the program do something; return its value or raise what it raised."""
        try:
            reply = self.link.request([operation, *arguments])
        except NotInert as error:
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

    def export(self, value: object) -> object:
        """What stands for an object of the test in the program's process."""
        if isinstance(value, Reference):
            return ["shared", value.number]
        if isinstance(value, Handle):
            return ["yours", object.__getattribute__(value, "_number")]
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
        """The one thing a program may ask: to call a function that the test handed to it."""
        match message:
            case ["call", int() as number, list() as args, dict() as kwargs] if (
                0 <= number < len(self.callbacks)
            ):
                try:
                    return [RETURNED, self.callbacks[number](*args, **cast("dict[str, Any]", kwargs))]
                except AssertionError as error:
                    # It stands whatever the program does with it: else this would be an oracle to guess
                    # against. Its text, which often holds the right value, stays here.
                    self.caught = self.caught or error
                    return [RAISED, [None, "AssertionError"], [], {}]
                except Exception as error:
                    return [RAISED, [None, _builtin_base(type(error))], [str(error)], {}]
            case _:
                raise self.link.lose("an unknown request")

    def _handle(self, number: int, flags: list[bool], classes: list[Any], labels: dict[Any, Any]) -> Handle:
        known = self.handles.get(number)
        if known is not None:
            return known
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


class Handle:
    """An object of the program's that has no plain form."""

    __slots__ = ("_classes", "_labels", "_number", "_peer")

    def __init__(self, peer: Peer, number: int, classes: tuple[Any, ...], labels: dict[str, str]) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_classes", classes)
        object.__setattr__(self, "_labels", labels)

    def __getattribute__(self, name: str) -> Any:
        # These would otherwise be found on the class of the handle.
        if name in _LABELS:
            labels = object.__getattribute__(self, "_labels")
            if name in labels or name == "__doc__":
                return labels.get(name)
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _FORWARDED_DUNDERS:
            raise AttributeError(name)
        return _ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "delattr", name)

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        _ask(self, "delitem", key)

    def __len__(self) -> int:
        return _exact(self, _ask(self, "len"), int)

    def __bool__(self) -> bool:
        return _exact(self, _ask(self, "bool"), bool)

    def __str__(self) -> str:
        return _exact(self, _ask(self, "str"), str)

    def __repr__(self) -> str:
        return _exact(self, _ask(self, "repr"), str)

    def __iter__(self) -> Iterator[Any]:
        return iter(_exact(self, _ask(self, "items"), list))

    def __contains__(self, item: object) -> bool:
        # Never the program's own __contains__: it would be told the value to agree with.
        return any(each is item or each == item for each in iter(self))

    def __enter__(self) -> Any:
        return _ask(self, "enter")

    def __exit__(self, *_error: object) -> None:
        # Whatever it answers: an error inside the block, a failed assertion above all, is the test's.
        _ask(self, "exit")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is Handle and type(self) is Handle and _same_state(self, other)

    def __hash__(self) -> int:
        # Handles may be equal by state, so all share one hash; the program has no say in it.
        return 0

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError("an object of the program cannot be copied into the test")


class CallableHandle(Handle):
    """A function, method or callable object of the program's."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ask(self, "call", list(args), kwargs)

    def __deepcopy__(self, _memo: Any) -> CallableHandle:
        return self


class ClassHandle(CallableHandle):
    """A class of the program's."""

    __slots__ = ()

    def __instancecheck__(self, instance: object) -> bool:
        if not issubclass(type(instance), Handle):
            return False
        number = object.__getattribute__(self, "_number")
        return number in object.__getattribute__(instance, "_classes")


class IteratorHandle(Handle):
    """A generator or other iterator of the program's, maybe an endless one.

    ``next`` asks for one item. A loop asks for some in advance, in proportion to what it has had.
    """

    __slots__ = ("_ahead", "_ended", "_given")

    def __init__(self, peer: Peer, number: int, classes: tuple[Any, ...], labels: dict[str, str]) -> None:
        super().__init__(peer, number, classes, labels)
        object.__setattr__(self, "_ahead", deque[Any]())
        object.__setattr__(self, "_ended", False)
        object.__setattr__(self, "_given", 0)

    def __iter__(self) -> Iterator[Any]:
        ahead = cast("deque[Any]", object.__getattribute__(self, "_ahead"))
        while ahead or _take(self, ahead):
            yield ahead.popleft()

    def __next__(self) -> Any:
        ahead = cast("deque[Any]", object.__getattribute__(self, "_ahead"))
        if ahead:
            return ahead.popleft()
        if object.__getattribute__(self, "_ended"):
            raise StopIteration
        return _ask(self, "next")


def _take(handle: IteratorHandle, ahead: deque[Any]) -> bool:
    """Ask for the next items of an iterator; False at its end."""
    if object.__getattribute__(handle, "_ended"):
        return False
    given = cast("int", object.__getattribute__(handle, "_given"))
    reply = _exact(handle, _ask(handle, "take", 1 + given // _ITEMS_PER_ITEM_AHEAD), list)
    match reply:
        case [list() as items, bool() as ended] if items or ended:
            ahead.extend(cast("list[Any]", items))
            object.__setattr__(handle, "_given", given + len(ahead))
            object.__setattr__(handle, "_ended", ended)
            return bool(ahead)
        case _:
            raise cast("Peer", object.__getattribute__(handle, "_peer")).link.lose("malformed items")


def _ask(handle: Handle, operation: str, *arguments: Any) -> Any:
    peer = cast("Peer", object.__getattribute__(handle, "_peer"))
    return peer.ask(operation, handle, *arguments)


def _exact(handle: Handle, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise cast("Peer", object.__getattribute__(handle, "_peer")).link.lose("a value of the wrong type")
    return value


def _same_state(left: Handle, right: Handle) -> bool:
    """Two instances of one class of the program's that defines equality, with equal attributes."""
    peer = cast("Peer", object.__getattribute__(left, "_peer"))
    if peer.comparing >= _MAX_NESTED_EQUALITY:
        return False
    peer.comparing += 1
    try:
        first, second = _ask(left, "state"), _ask(right, "state")
        return type(first) is list and bool(first[-1]) and first == second
    finally:
        peer.comparing -= 1


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
