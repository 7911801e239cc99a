"""Named tuples on the link: a tuple whose items can also be read by name.

Equality, order and hash of the tuples created here are those of a plain tuple, whatever the program's class
defines.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from keyword import iskeyword
from typing import Any, cast

from whetstone.judge.plain_forms import record_fields
from whetstone.judge.values import WireError

_MAX_FIELDS = 256
_TUPLE_METHODS = frozenset({"count", "index"})

Described = list[Any]
"""Name, fields and items."""


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


def describe_record(value: tuple[Any, ...]) -> Described:
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
