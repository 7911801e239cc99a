"""In the test process: proxies for single objects of the program.

A handle forwards what only the program can answer (calls, attributes, items, length, iteration, truth), and
gets plain values back. Whatever could let a program decide whether an assertion holds is decided here and
never forwarded. This concerns equality, hashing, containment, ``isinstance``, and any operator between an
object and a value of the test, which may be the expected value.

Order and arithmetic between two objects are forwarded if the test names the classes of both. Then these
operators are tested, like any method of such a class. The same holds for arithmetic with a plain value, for
an object that the test constructed. It does not hold for an object that the program returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from whetstone.judge.rpc.link import LinkLost
from whetstone.judge.rpc.operations import BINARY, COMPARISONS, IN_PLACE, REFLECTED, UNARY

_FORWARDED_DUNDERS = frozenset({"__dict__", "__annotations__", "__defaults__", "__kwdefaults__"})
_LABELS = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})
_PLAINLY_FORWARDED = (
    *("setattr", "delattr", "getitem", "setitem", "delitem", "enter", "round", "copy"),
    *UNARY,
)
# Operations whose result Python, or the test, relies on to have exactly this type.
_RESULT_TYPES: dict[str, type] = {
    "len": int,
    "bool": bool,
    "str": str,
    "repr": str,
    "format": str,
    "int": int,
    "float": float,
}
# The attribute in which the class of a record stores the numbers of the program's classes that it represents.
RECORD_CLASSES = "_program_classes"
_MAX_NESTED_EQUALITY = 50
_ITEMS_PER_PREFETCH = 8


class ProgramPeer(Protocol):
    """What a handle needs of the other process."""

    tested: set[int]
    """Numbers of the program's classes that the test code names."""
    comparing: int

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Let the program do an operation. Returns its value, or raises the exception that it raised."""
        ...

    def record_construction(self, kind: int, number: int) -> None:
        """Record that the test called the class ``kind``, and got this object."""
        ...

    def is_constructed_by_test(self, number: int) -> bool:
        """Return whether the test got it only by calling a class that the problem asks for."""
        ...

    def break_link(self, reason: str) -> LinkLost:
        """End the link, and return the exception with the reason."""
        ...


class Handle:
    """An object of the program without a plain form."""

    __slots__ = ("_classes", "_labels", "_number", "_peer")

    def __init__(
        self, peer: ProgramPeer, number: int, classes: tuple[Any, ...], labels: dict[str, str]
    ) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_classes", classes)
        object.__setattr__(self, "_labels", labels)

    def __getattribute__(self, name: str) -> Any:
        # Without this, the labels of the handle's own class would be found.
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

    def __iter__(self) -> Iterator[Any]:
        return iter(_check_type(self, _ask(self, "items"), list))

    def __contains__(self, item: object) -> bool:
        # The program's own __contains__ would learn the value that it must contain.
        return any(each is item or each == item for each in iter(self))

    def __exit__(self, *_error: object) -> None:
        # The result is ignored: a program must not suppress an error inside the block, such as a failed
        # assertion.
        _ask(self, "exit")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Handle or type(other) is CallableHandle:
            return type(self) is type(other) and _have_equal_state(self, other)
        return False

    def __hash__(self) -> int:
        # Handles may be equal by state, so all of them share one hash. The program cannot influence it.
        return 0

    def __reversed__(self) -> Iterator[Any]:
        return iter(_check_type(self, _ask(self, "reversed"), list))

    def __deepcopy__(self, _memo: Any) -> Any:
        return _ask(self, "deepcopy")

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError("an object of the program cannot be pickled by the test")


def _add_special_methods() -> None:
    """Give handles the special methods that only forward an operation, which has the name of the method."""
    for name in _PLAINLY_FORWARDED:
        _add_special_method(name, _ask)
    for name in _RESULT_TYPES:
        _add_special_method(name, _ask_checked)
    for name in COMPARISONS:
        _add_special_method(name, _compare)
    for name in (*BINARY, *REFLECTED):
        _add_special_method(name, _combine)
    for name in IN_PLACE:
        _add_special_method(name, _combine_in_place)


def _add_special_method(operation: str, forward: Callable[..., Any]) -> None:
    def method(handle: Handle, *arguments: Any) -> Any:
        return forward(handle, operation, *arguments)

    setattr(Handle, f"__{operation}__", method)


class CallableHandle(Handle):
    """A function, method or callable object of the program."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ask(self, "call", list(args), kwargs)


class ClassHandle(CallableHandle):
    """A class of the program."""

    __slots__ = ()

    def __instancecheck__(self, instance: object) -> bool:
        number = object.__getattribute__(self, "_number")
        return number in classes_of(instance)

    def __subclasscheck__(self, other: object) -> bool:
        if type(other) is not ClassHandle:
            return False
        return number_of(self) in _check_type(other, _ask(other, "bases"), list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        instance = super().__call__(*args, **kwargs)
        if number_of(self) in classes_of(instance) and isinstance(instance, Handle):
            cast("ProgramPeer", object.__getattribute__(self, "_peer")).record_construction(
                number_of(self), number_of(instance)
            )
        return instance


class IteratorHandle(Handle):
    """A generator or other iterator of the program, which may be endless.

    ``next`` requests one item. A loop requests some in advance, in proportion to those that it has received.
    """

    __slots__ = ("_ahead", "_ended", "_given")

    def __init__(
        self, peer: ProgramPeer, number: int, classes: tuple[Any, ...], labels: dict[str, str]
    ) -> None:
        super().__init__(peer, number, classes, labels)
        object.__setattr__(self, "_ahead", deque[Any]())
        object.__setattr__(self, "_ended", False)
        object.__setattr__(self, "_given", 0)

    def __iter__(self) -> Iterator[Any]:
        ahead = cast("deque[Any]", object.__getattribute__(self, "_ahead"))
        while ahead or _fetch_items(self, ahead):
            yield ahead.popleft()

    def __next__(self) -> Any:
        ahead = cast("deque[Any]", object.__getattribute__(self, "_ahead"))
        if ahead:
            return ahead.popleft()
        if object.__getattribute__(self, "_ended"):
            raise StopIteration
        return _ask(self, "next")


class NamedTupleProxy:
    """A mixin for named tuples: attributes that are no fields are requested from the program's object."""

    def __getattr__(self, name: str) -> Any:
        handle = self.__dict__.get("_handle")
        if handle is None or name[:1] == "_":
            raise AttributeError(name)
        return getattr(handle, name)


def number_of(handle: Handle) -> int:
    """Return the number by which the program's process identifies an object."""
    return object.__getattribute__(handle, "_number")


def classes_of(value: object) -> tuple[int, ...]:
    """Return the numbers of the program's classes of a handle or record; empty for other values."""
    kind = type(value)
    if issubclass(kind, Handle):
        return object.__getattribute__(value, "_classes")
    if issubclass(kind, tuple):
        return kind.__dict__.get(RECORD_CLASSES, ())
    return ()


def _both_tested(handle: Handle, other: object) -> bool:
    tested = cast("ProgramPeer", object.__getattribute__(handle, "_peer")).tested
    return all(tested.intersection(classes_of(value)) for value in (handle, other))


def _combine(handle: Handle, operation: str, other: object) -> Any:
    if _both_tested(handle, other) or _is_operand(handle, other):
        return _ask(handle, operation, other)
    return NotImplemented


def _combine_in_place(handle: Handle, operation: str, other: object) -> Any:
    result = _combine(handle, operation, other)
    if result is NotImplemented:
        return result
    found = _check_type(handle, result, list)
    return found[0] if found else handle


def _is_operand(handle: Handle, other: object) -> bool:
    """Return whether an operator of the object may get a plain value: only if the test constructed the
    object.

    An object that the program returned may stand where the test compares a number with the expected one.
    """
    if isinstance(other, Handle):
        return False
    peer = cast("ProgramPeer", object.__getattribute__(handle, "_peer"))
    return peer.is_constructed_by_test(number_of(handle)) and bool(
        peer.tested.intersection(classes_of(handle))
    )


def _compare(handle: Handle, operation: str, other: object) -> Any:
    if not _both_tested(handle, other):
        return NotImplemented
    return _check_type(handle, _ask(handle, operation, other), bool)


def _fetch_items(handle: IteratorHandle, ahead: deque[Any]) -> bool:
    """Request the next items of an iterator. Returns False at its end."""
    if object.__getattribute__(handle, "_ended"):
        return False
    given = cast("int", object.__getattribute__(handle, "_given"))
    reply = _check_type(handle, _ask(handle, "take", 1 + given // _ITEMS_PER_PREFETCH), list)
    match reply:
        case [list() as items, bool() as ended] if items or ended:
            ahead.extend(cast("list[Any]", items))
            object.__setattr__(handle, "_given", given + len(ahead))
            object.__setattr__(handle, "_ended", ended)
            return bool(ahead)
        case _:
            raise cast("ProgramPeer", object.__getattribute__(handle, "_peer")).break_link("malformed items")


def _ask(handle: Handle, operation: str, *arguments: Any) -> Any:
    peer = cast("ProgramPeer", object.__getattribute__(handle, "_peer"))
    return peer.ask(operation, handle, *arguments)


def _ask_checked(handle: Handle, operation: str, *arguments: Any) -> Any:
    return _check_type(handle, _ask(handle, operation, *arguments), _RESULT_TYPES[operation])


def _check_type(handle: Handle, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise cast("ProgramPeer", object.__getattribute__(handle, "_peer")).break_link(
            "a value of the wrong type"
        )
    return value


def _have_equal_state(left: Handle, right: Handle) -> bool:
    """Return whether two instances of a class of the program that defines equality have equal attributes."""
    peer = cast("ProgramPeer", object.__getattribute__(left, "_peer"))
    if peer.comparing >= _MAX_NESTED_EQUALITY:
        return False
    peer.comparing += 1
    try:
        first, second = _ask(left, "state"), _ask(right, "state")
        return type(first) is list and bool(first[-1]) and first == second
    finally:
        peer.comparing -= 1


_add_special_methods()
