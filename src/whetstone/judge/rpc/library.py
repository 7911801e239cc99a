"""Named tuples, and objects of libraries, that cross by value in addition to those of the codec.

A named tuple is a tuple whose items can also be read by name. Equality, order and hash of the ones created
here are those of a plain tuple, whatever the program's class defines.

Paths cross in both directions. An XML element crosses only from the test to the program, as a copy. An array
of the test becomes an array in the program. An array of the program becomes a list in the test, with the
attributes of an array.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from functools import lru_cache
from keyword import iskeyword
from math import prod
from typing import Any, cast

from whetstone.judge.plain_forms import is_array, record_fields
from whetstone.judge.rpc.library_values import describe_value
from whetstone.judge.values import WireError

_MAX_AXES = 32
_MAX_FIELDS = 256
_TUPLE_METHODS = frozenset({"count", "index"})


def describe_object(value: object) -> list[Any] | None:
    """Return the message form of ``value``; None for any other object. Imports no module."""
    kind = type(value)
    paths, trees = sys.modules.get("pathlib"), sys.modules.get("xml.etree.ElementTree")
    if paths is not None and kind in (paths.PosixPath, paths.PurePosixPath):
        return ["path", kind is paths.PosixPath, str(value)]
    if trees is not None and kind is trees.Element:
        return ["element", *_describe_element(value)]
    return describe_array(value) if is_array(kind) else describe_value(value)


def describe_array(value: Any) -> list[Any]:
    """Return the message form of a numpy array: the type of its items, its shape and its items."""
    items = value.tolist()
    return ["array", str(value.dtype), list(value.shape), items if type(items) is list else [items]]


def read_array(dtype: str, shape: list[int], items: list[Any]) -> object:
    """Return the described array, or its items if numpy is not available."""
    try:
        import numpy  # only where one crosses

        return numpy.array(items, dtype=dtype).reshape(shape)
    except (ImportError, TypeError, ValueError):
        return items


def read_shape(shape: list[Any]) -> tuple[int, ...]:
    """Return the shape of an array of the program. Raises WireError if it is malformed."""
    if len(shape) > _MAX_AXES or not all(type(size) is int and 0 <= size < 1 << 32 for size in shape):
        raise WireError("a malformed shape")
    return tuple(shape)


class Array(list[Any]):
    """The items of an array of the program. It compares like a list, and has the attributes of an array."""

    def __init__(self, shape: tuple[int, ...], items: list[Any]) -> None:
        super().__init__(items)
        self.shape = shape

    def __getattr__(self, name: str) -> Any:
        numpy = sys.modules.get("numpy")
        if name[:1] != "_" and numpy is not None:
            return getattr(numpy.array(self.tolist()).reshape(self.shape), name)
        if name in ("ndim", "size"):
            return len(self.shape) if name == "ndim" else prod(self.shape)
        raise AttributeError(f"a list has no attribute {name!r}, and numpy is not loaded in the test")

    def tolist(self) -> list[Any]:
        """Return a list of the items."""
        return list(self)


def read_path(is_concrete: bool, text: str) -> object:
    """Return the described path."""
    import pathlib  # only where one crosses

    return pathlib.PosixPath(text) if is_concrete else pathlib.PurePosixPath(text)


def read_element(parts: list[Any]) -> object:
    """Return the described element. Raises WireError if it is malformed."""
    import xml.etree.ElementTree as Trees  # only where one crosses

    match parts:
        case [tag, text, tail, dict() as attributes, list() as children]:
            element = Trees.Element(tag, attributes)
            element.text, element.tail = text, tail
            for child in cast("list[Any]", children):
                element.append(cast("Any", read_element(child)))
            return element
        case _:
            raise WireError("a malformed element")


def _describe_element(element: Any) -> list[Any]:
    return [
        element.tag,
        element.text,
        element.tail,
        dict(element.attrib),
        [_describe_element(e) for e in element],
    ]


@lru_cache(maxsize=1024)
def record_class(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """Return a named tuple class. Raises WireError for fields that no named tuple can have."""
    if len(fields) > _MAX_FIELDS or len(set(fields)) != len(fields):
        raise WireError("malformed fields")
    if not all(f.isidentifier() and not iskeyword(f) and f[0] != "_" for f in fields):
        raise WireError("malformed fields")
    usable = name.isidentifier() and not iskeyword(name)
    try:
        made = namedtuple(name if usable else "Record", fields)  # pyright: ignore[reportUntypedNamedTuple]
    # Two different names can be the same to Python, because it normalises them.
    except SyntaxError:
        raise WireError("malformed fields") from None
    return cast("type[tuple[Any, ...]]", made)


def describe_record(value: tuple[Any, ...]) -> list[Any]:
    """Return the name of the class, the fields and the items of a named tuple."""
    kind = type(value)
    fields = record_fields(kind) or ()
    name = type.__getattribute__(kind, "__name__")
    return [name if type(name) is str else "Record", list(fields), list(tuple.__iter__(value))]


def read_record(described: list[Any], kind: type[tuple[Any, ...]] | None = None) -> tuple[Any, ...]:
    """Return the described named tuple, of class ``kind`` if given. Raises WireError if it is malformed."""
    match described:
        case [str() as name, list() as fields, list() as items] if len(items) == len(fields):
            named = cast("list[Any]", fields)
            if not all(type(field) is str for field in named):
                raise WireError("malformed fields")
            made = record_class(name, tuple(named)) if kind is None else kind
            return tuple.__new__(made, cast("list[Any]", items))
        case _:
            raise WireError("a malformed named tuple")


def has_more_than_fields(kind: type) -> bool:
    """Return whether a named tuple class has methods or properties of its own."""
    fields = record_fields(kind) or ()
    names = {name for base in kind.__mro__ if base is not tuple and base is not object for name in vars(base)}
    return any(name[:1] != "_" and name not in fields and name not in _TUPLE_METHODS for name in names)
