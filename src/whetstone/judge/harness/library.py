"""Objects of the standard library and of numpy that cross by value, beside what the codec knows.

Paths cross both ways. An XML element crosses from the test to the program alone, as a copy. An array that the
test hands over is one there; one of the program's is a list in the test, with what else an array has.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any, cast

from whetstone.judge.values import WireError, is_array

_MAX_AXES = 32


def describe_object(value: object) -> list[Any] | None:
    """What crosses of ``value``; None for any other object. Looks at modules only once they are loaded."""
    kind = type(value)
    paths, trees = sys.modules.get("pathlib"), sys.modules.get("xml.etree.ElementTree")
    if paths is not None and kind in (paths.PosixPath, paths.PurePosixPath):
        return ["path", kind is paths.PosixPath, str(value)]
    if trees is not None and kind is trees.Element:
        return ["element", *_described(value)]
    return describe_array(value) if is_array(kind) else None


def describe_array(value: Any) -> list[Any]:
    """What crosses of numpy's array: its type of items, its shape, its items."""
    items = value.tolist()
    return ["array", str(value.dtype), list(value.shape), items if type(items) is list else [items]]


def read_array(dtype: str, shape: list[int], items: list[Any]) -> object:
    """The array that was described, or its items where there is no numpy."""
    try:
        import numpy  # only where one crosses

        return numpy.array(items, dtype=dtype).reshape(shape)
    except (ImportError, TypeError, ValueError):
        return items


def read_shape(shape: list[Any]) -> tuple[int, ...]:
    """The shape of an array of the program's. Raises WireError on nonsense."""
    if len(shape) > _MAX_AXES or not all(type(size) is int and 0 <= size < 1 << 32 for size in shape):
        raise WireError("a malformed shape")
    return tuple(shape)


class Array(list[Any]):
    """The items of an array of the program's: a list in every comparison, with an array's attributes."""

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
        """A list of the items."""
        return list(self)


def read_path(is_concrete: bool, text: str) -> object:
    """The path that was described."""
    import pathlib  # only where one crosses

    return pathlib.PosixPath(text) if is_concrete else pathlib.PurePosixPath(text)


def read_element(parts: list[Any]) -> object:
    """The element that was described. Raises WireError on nonsense."""
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


def _described(element: Any) -> list[Any]:
    return [element.tag, element.text, element.tail, dict(element.attrib), [_described(e) for e in element]]
