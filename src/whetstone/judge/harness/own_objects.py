"""In the testing process: objects of the test's own classes that the program was given, and what it may do.

The names and operations that it may ask for are a closed list, which each object makes: public attributes
that test code gave it or its class, and operators that a class defines in Python. The program cannot reach
names with an underscore, and so no class, globals or frames, and no slot of a builtin type. It can set data
that is there; it cannot add a name, or put something of its own in place of a method, which the test may
use to decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from inspect import get_annotations
from itertools import islice
from types import (
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

from whetstone.judge.values import WireError

_MAX_ITEMS = 1_000_000
_ABSENT = object()


class OwnObjects:
    """The objects by number; the same object always has the same one."""

    def __init__(self, module: str) -> None:
        """``module`` is where the test's classes say that they were defined."""
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._traits: dict[type, tuple[str, ...]] = {}

    def owns(self, value: object) -> bool:
        """Whether a value is an instance of a class that the test code defines."""
        return type.__getattribute__(type(value), "__module__") == self._module

    def described(self, value: object) -> list[Any]:
        """``[number, name of its class, operations that it has]``. The number keeps the object alive."""
        known = self._numbers.get(id(value))
        if known is None:
            known = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        kind = type(value)
        traits = self._traits.get(kind)
        if traits is None:
            traits = self._traits[kind] = tuple(name for name in _OPERATIONS if _has(kind, name))
        return [known, kind.__name__, traits]

    def object(self, number: int) -> Any:
        """The object behind a number. Raises WireError for one that was never given out."""
        if not 0 <= number < len(self._objects):
            raise WireError("an unknown object")
        return self._objects[number]

    def do(self, operation: str, number: int, arguments: list[Any]) -> Any:
        """Do what the program asks for. Raises WireError for what may not be asked at all."""
        target = self.object(number)
        if operation not in _OPERATIONS or not _has(type(target), operation):
            raise WireError("an unknown operation")
        function, _, count = _OPERATIONS[operation]
        if len(arguments) != count:
            raise WireError("malformed arguments")
        return function(target, *arguments)


def _public(name: object) -> str:
    if type(name) is not str or name[:1] == "_":
        raise AttributeError(name)
    return name


def _declared(kind: type, name: str) -> Any:
    """What the class or a base of it holds under a name, as it stands there."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), _ABSENT)


def _data(target: Any) -> dict[str, Any]:
    """The attributes that an instance holds in itself."""
    try:
        return object.__getattribute__(target, "__dict__")
    except AttributeError:
        return {}


def _is_slot(held: Any) -> bool:
    """Whether a class of Python code declares it in ``__slots__``: a builtin type's members are its own."""
    return type(held) is MemberDescriptorType and "__slots__" in held.__objclass__.__dict__


def _is_builtin(held: Any) -> bool:
    if type(held) is MethodDescriptorType:  # checks what it is given, unlike a member
        return held.__objclass__ in BaseException.__mro__
    return type(held) in {
        GetSetDescriptorType,
        MemberDescriptorType,
        WrapperDescriptorType,
        ClassMethodDescriptorType,
    } and not _is_slot(held)


def _get(target: Any, name: object) -> Any:
    held = _declared(type(target), _public(name))
    if held is _ABSENT:
        there = name in _data(target) or type(_declared(type(target), "__getattr__")) is FunctionType
    else:
        there = not _is_builtin(held)
    if not there:
        raise AttributeError(name)
    return getattr(target, _public(name))


def _set(target: Any, name: object, value: Any) -> bool:
    """Set data of the test's object. False for a name that it does not have: that is the program's own."""
    held = _declared(type(target), _public(name))
    if held is _ABSENT and name not in _data(target) and not _is_annotated(type(target), _public(name)):
        return False
    setter = getattr(type(held), "__set__", None)
    written = type(setter) is FunctionType or (type(held) is property and held.fset is not None)
    computed = setter is None and hasattr(type(held), "__get__")  # methods, cached properties
    settable = (setter is None and not computed) or written or _is_slot(held)
    if not settable or callable(value) or (not written and callable(_current(target, _public(name), held))):
        raise AttributeError(name)
    setattr(target, _public(name), value)
    return True


def _is_annotated(kind: type, name: str) -> bool:
    return any(name in get_annotations(base) for base in kind.__mro__)


def _current(target: Any, name: str, held: Any) -> Any:
    """What a name stands for now, without running anything."""
    if _is_slot(held):
        return getattr(target, name, None)
    data = _data(target)
    return data[name] if name in data else getattr(type(target), name, None)


def _items(target: Any) -> list[Any]:
    items = list(islice(iter(target), _MAX_ITEMS + 1))
    if len(items) > _MAX_ITEMS:
        raise OverflowError
    return items


def _call(target: Any, args: Any, kwargs: Any) -> Any:
    if type(args) is not list or type(kwargs) is not dict:
        raise WireError("malformed arguments")
    return target(*args, **kwargs)


_Operation = tuple[Callable[..., Any], tuple[str, ...], int]
# What each does, the methods of which a class must define one in Python, and how many arguments there are.
_OPERATIONS: dict[str, _Operation] = {
    "getattr": (_get, (), 1),
    "setattr": (_set, (), 2),
    "getitem": (operator.getitem, ("__getitem__",), 1),
    "setitem": (operator.setitem, ("__setitem__",), 2),
    "delitem": (operator.delitem, ("__delitem__",), 1),
    "len": (len, ("__len__",), 0),
    "bool": (bool, ("__bool__", "__len__"), 0),
    "items": (_items, ("__iter__", "__getitem__"), 0),
    "contains": (operator.contains, ("__contains__", "__iter__", "__getitem__"), 1),
    "eq": (operator.eq, ("__eq__",), 1),
    "hash": (hash, ("__hash__",), 0),
    "lt": (operator.lt, ("__lt__", "__gt__"), 1),
    "le": (operator.le, ("__le__", "__ge__"), 1),
    "gt": (operator.gt, ("__gt__", "__lt__"), 1),
    "ge": (operator.ge, ("__ge__", "__le__"), 1),
    "add": (operator.add, ("__add__",), 1),
    "sub": (operator.sub, ("__sub__",), 1),
    "mul": (operator.mul, ("__mul__",), 1),
    "call": (_call, ("__call__",), 2),
    "str": (str, ("__str__", "__repr__"), 0),
    "repr": (repr, ("__repr__",), 0),
}


def _has(kind: type, operation: str) -> bool:
    """Whether a class has an operation, by its own Python code alone.

    The first of its methods that some class below ``object`` defines decides, as in Python.
    """
    methods = _OPERATIONS[operation][1]
    held = [_declared(kind, method) for method in methods]
    defined = [h for h in held if h is not _ABSENT and getattr(h, "__objclass__", None) is not object]
    return not methods or (bool(defined) and type(defined[0]) is FunctionType)
