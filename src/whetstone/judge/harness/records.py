"""Named tuples across the wire: a tuple whose items can also be read by name, and nothing more.

Equality, order and hash of what is made here are those of a tuple, whatever the program's class says.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from keyword import iskeyword
from typing import Any, cast

from whetstone.judge.values import WireError, record_fields

_MAX_FIELDS = 256
_OF_TUPLES = frozenset({"count", "index"})

Described = list[Any]
"""Name, fields and items."""


@lru_cache(maxsize=1024)
def record_class(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """A named tuple class. Raises WireError for fields that no named tuple can have."""
    if len(fields) > _MAX_FIELDS or len(set(fields)) != len(fields):
        raise WireError("malformed fields")
    if not all(f.isidentifier() and not iskeyword(f) and f[0] != "_" for f in fields):
        raise WireError("malformed fields")
    usable = name.isidentifier() and not iskeyword(name)
    try:
        made = namedtuple(name if usable else "Record", fields)  # pyright: ignore[reportUntypedNamedTuple]
    except SyntaxError:  # two names that Python reads as the same
        raise WireError("malformed fields") from None
    return cast("type[tuple[Any, ...]]", made)


def describe_record(value: tuple[Any, ...]) -> Described:
    """What crosses of a named tuple: its class's name, its fields, its items."""
    kind = type(value)
    fields = record_fields(kind) or ()
    name = type.__getattribute__(kind, "__name__")
    return [name if type(name) is str else "Record", list(fields), list(tuple.__iter__(value))]


def read_record(described: list[Any], kind: type[tuple[Any, ...]] | None = None) -> tuple[Any, ...]:
    """The named tuple that was described, of ``kind`` if given. Raises WireError on nonsense."""
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
    """Whether a named tuple class has methods or properties of its own."""
    fields = record_fields(kind) or ()
    names = {name for base in kind.__mro__ if base is not tuple and base is not object for name in vars(base)}
    return any(name[:1] != "_" and name not in fields and name not in _OF_TUPLES for name in names)
