"""A short text of a plain value, for a reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import cast

from whetstone.judge.answers.inert import DEQUE, Inert, pairs_of


def show(value: object, width: int = 60) -> str:
    """A short text of a plain value, built or not. Never fails, never slow."""
    text = _show(value, width)
    return text if len(text) <= width else text[: width - 1] + "…"


def _show(value: object, width: int) -> str:
    if type(value) is int and value.bit_length() > 4000:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value[: width + 1])
    if isinstance(value, (list, tuple, set, frozenset, deque, dict, Inert)):
        return _show_items(value, width)
    try:
        return repr(value)
    except ValueError:
        return f"a value of type {type(value).__name__}"


def _show_items(value: object, width: int) -> str:
    items: list[str] = []
    pairs = pairs_of(value)
    if pairs is None:
        content = value.items if isinstance(value, Inert) else cast("Iterable[object]", value)
    else:
        content = pairs
    for item in content:
        if sum(map(len, items)) > width:
            break
        if pairs is not None:
            key, entry = cast("tuple[object, object]", item)
            items.append(f"{_show(key, width)}: {_show(entry, width)}")
        else:
            items.append(_show(item, width))
    listed = isinstance(value, (list, deque)) or (isinstance(value, Inert) and value.kind == DEQUE)
    brackets = "()" if isinstance(value, tuple) else "[]" if listed else "{}"
    return brackets[0] + ", ".join(items) + brackets[1]
