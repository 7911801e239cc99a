"""In the test process: objects of the test's own classes that the program has received, and their operations.

The program may use only a closed list of names and operations for each object. These are public attributes
that test code set on it or its class, and operators that a class defines in Python. It cannot reach names
with an underscore, so no class, globals or frames, and no slot of a builtin type. It can set existing data.
It cannot add a name or replace a method, because the test may use them to decide.
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


class TestObjects:
    """The objects by number. An object keeps its number."""

    def __init__(self, module: str) -> None:
        """``module`` is the ``__module__`` of the test's classes."""
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._traits: dict[type, tuple[str, ...]] = {}

    def owns(self, value: object) -> bool:
        """Return whether a value is an instance of a class that the test code defines."""
        return type.__getattribute__(type(value), "__module__") == self._module

    def describe(self, value: object) -> list[Any]:
        """Return ``[number, name of its class, its operations]``. The object is kept alive from now on."""
        object_number = self._numbers.get(id(value))
        if object_number is None:
            object_number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        kind = type(value)
        traits = self._traits.get(kind)
        if traits is None:
            traits = self._traits[kind] = tuple(name for name in _OPERATIONS if _defines(kind, name))
        return [object_number, kind.__name__, traits]

    def object(self, number: int) -> Any:
        """Return the object with this number. Raises WireError if no object has it."""
        if not 0 <= number < len(self._objects):
            raise WireError("an unknown object")
        return self._objects[number]

    def operate(self, operation: str, number: int, arguments: list[Any]) -> Any:
        """Do an operation for the program. Raises WireError for an operation that is not allowed."""
        target = self.object(number)
        if operation not in _OPERATIONS or not _defines(type(target), operation):
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
    """Return the entry of a class or its bases for a name, without binding it."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), _ABSENT)


def _data(target: Any) -> dict[str, Any]:
    """Return the instance attributes of an object."""
    try:
        return object.__getattribute__(target, "__dict__")
    except AttributeError:
        return {}


def _is_slot(member: Any) -> bool:
    """Return whether a Python class declares it in ``__slots__``. Builtin types have such members, too."""
    return type(member) is MemberDescriptorType and "__slots__" in member.__objclass__.__dict__


def _is_builtin(member: Any) -> bool:
    # A method of a builtin type checks its arguments, unlike a member.
    if type(member) is MethodDescriptorType:
        return member.__objclass__ in BaseException.__mro__
    return type(member) in {
        GetSetDescriptorType,
        MemberDescriptorType,
        WrapperDescriptorType,
        ClassMethodDescriptorType,
    } and not _is_slot(member)


def _get(target: Any, name: object) -> Any:
    member = _declared(type(target), _public(name))
    if member is _ABSENT:
        exists = name in _data(target) or type(_declared(type(target), "__getattr__")) is FunctionType
    else:
        exists = not _is_builtin(member)
    if not exists:
        raise AttributeError(name)
    return getattr(target, _public(name))


def _set(target: Any, name: object, value: Any) -> bool:
    """Set data of the test's object.

    Returns False for a name that the object does not have: it is the program's.
    """
    member = _declared(type(target), _public(name))
    if member is _ABSENT and name not in _data(target) and not _is_annotated(type(target), _public(name)):
        return False
    setter = getattr(type(member), "__set__", None)
    has_setter = type(setter) is FunctionType or (type(member) is property and member.fset is not None)
    is_computed = setter is None and hasattr(type(member), "__get__")  # such as methods, cached properties
    is_settable = (setter is None and not is_computed) or has_setter or _is_slot(member)
    if (
        not is_settable
        or callable(value)
        or (not has_setter and callable(_current_value(target, _public(name), member)))
    ):
        raise AttributeError(name)
    setattr(target, _public(name), value)
    return True


def _is_annotated(kind: type, name: str) -> bool:
    return any(name in get_annotations(base) for base in kind.__mro__)


def _current_value(target: Any, name: str, member: Any) -> Any:
    """Return the current value of a name, without running any code."""
    if _is_slot(member):
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
# The function, the methods of which a class must define one in Python, and the number of arguments.
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


def _defines(kind: type, operation: str) -> bool:
    """Return whether a class defines an operation in Python code of its own.

    The first of its methods that a class below ``object`` defines decides, as in Python.
    """
    methods = _OPERATIONS[operation][1]
    members = [_declared(kind, method) for method in methods]
    defined = [m for m in members if m is not _ABSENT and getattr(m, "__objclass__", None) is not object]
    return not methods or (bool(defined) and type(defined[0]) is FunctionType)
