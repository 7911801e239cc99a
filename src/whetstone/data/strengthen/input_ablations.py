"""Programs that are right but do not see all of their input: those that read a part of it, or something else.

Such a program is the reference given a changed input: cut short, without repetitions, sorted, in lower case,
another argument's value. What it answers needs no other program than the reference, and it is one that a
person might have written. An input refuses it where the change of the input changes the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

Blind = tuple[str, Callable[[list[Any]], list[Any]]]
"""What the program does, and the arguments that it goes by."""

_CUTS = (1, 2, 3, 5, 8)
_TEXT_CUTS = (1, 2, 4, 8, 12)


def blindnesses(seeds: Sequence[Sequence[Any]]) -> list[Blind]:
    """The programs of this kind, for inputs like these."""
    found: list[Blind] = []
    width = len(seeds[0])
    for at in range(width):
        kinds = {type(seed[at]) for seed in seeds}
        for name, change in _changes(kinds):
            found.append((f"{name} (argument {at + 1})", _at(at, change)))
        if width > 1:
            for number in (0, len(seeds) - 1):
                found.append(
                    (f"takes argument {at + 1} as in test {number}", _constant(at, seeds[number][at]))
                )
        for other in range(at + 1, width):
            if kinds == {type(seed[other]) for seed in seeds}:
                found.append(
                    (f"takes arguments {at + 1} and {other + 1} for each other", _swapped(at, other))
                )
    return found


def _at(at: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda arguments: [*arguments[:at], change(arguments[at]), *arguments[at + 1 :]]


def _constant(at: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda arguments: [*arguments[:at], value, *arguments[at + 1 :]]


def _swapped(one: int, other: int) -> Callable[[list[Any]], list[Any]]:
    def swap(arguments: list[Any]) -> list[Any]:
        made = list(arguments)
        made[one], made[other] = made[other], made[one]
        return made

    return swap


def _changes(kinds: set[type]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    if kinds & {list, tuple}:
        yield from _of_items()
        yield from ((f"{name}, in each item", _each(change)) for name, change in (*_of_number(), *_of_text()))
        yield from ((f"{name}, in each item", _each(change)) for name, change in _of_items())
    if str in kinds:
        yield from _of_text()
    if kinds & {int, float}:
        yield from _of_number()
    if dict in kinds:
        yield "overlooks the first key", lambda v: dict(list(v.items())[1:])
        yield "overlooks the last key", lambda v: dict(list(v.items())[:-1])


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The change in each item that it is for."""

    def changed(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        items = [_changed(change, item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else tuple(items)

    return changed


def _changed(change: Callable[[Any], Any], item: Any) -> Any:
    try:
        return change(item)
    except (TypeError, ValueError, AttributeError, OverflowError):
        return item


def _of_items() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for count in _CUTS:
        yield f"reads {count} items at most", lambda v, count=count: _items(v)[:count]
    yield "overlooks the first item", lambda v: _items(v)[1:]
    yield "overlooks the last item", lambda v: _items(v)[:-1]
    yield "overlooks items that come again", _without_repetitions
    yield "overlooks an item like the one before", _without_runs
    yield "sorts the items", lambda v: _as(v, sorted(_items(v)))
    yield "reverses the items", lambda v: _items(v)[::-1]
    yield "overlooks zeros", lambda v: _as(v, [item for item in _items(v) if item != 0])
    yield "overlooks negative items", lambda v: _as(v, [item for item in _items(v) if item >= 0])
    yield "overlooks odd items", lambda v: _as(v, [item for item in _items(v) if item % 2 == 0])
    yield "overlooks even items", lambda v: _as(v, [item for item in _items(v) if item % 2])


def _of_text() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for count in _TEXT_CUTS:
        yield f"reads {count} letters at most", lambda v, count=count: _text(v)[:count]
    yield "overlooks the first letter", lambda v: _text(v)[1:]
    yield "overlooks the last letter", lambda v: _text(v)[:-1]
    yield "overlooks letters that come again", lambda v: "".join(dict.fromkeys(_text(v)))
    yield "overlooks a letter like the one before", lambda v: re.sub(r"(.)\1+", r"\1", _text(v))
    yield "sorts the letters", lambda v: "".join(sorted(_text(v)))
    yield "reverses the letters", lambda v: _text(v)[::-1]
    yield "knows lower case alone", lambda v: _text(v).lower()
    yield "knows upper case alone", lambda v: _text(v).upper()
    yield "takes several blanks for one", lambda v: " ".join(_text(v).split())
    yield "overlooks blanks", lambda v: re.sub(r"\s+", "", _text(v))
    yield "overlooks digits", lambda v: re.sub(r"\d+", "", _text(v))
    yield "overlooks signs", lambda v: re.sub(r"[^\w\s]+", "", _text(v))
    yield "reads one word", lambda v: _text(v).split(" ")[0]
    yield "reads two words", lambda v: " ".join(_text(v).split(" ")[:2])


def _of_number() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield "overlooks the sign", lambda v: abs(_number(v))
    yield "is one too high", lambda v: _number(v) + 1
    yield "is one too low", lambda v: _number(v) - 1
    yield "stops at 10", lambda v: min(_number(v), 10)
    yield "stops at 100", lambda v: min(_number(v), 100)
    yield "reads the last digit", lambda v: _number(v) % 10
    yield "reads the last two digits", lambda v: _number(v) % 100
    yield "takes even numbers for odd", lambda v: v + (_number(v) % 2 == 0)
    yield "overlooks fractions", lambda v: type(v)(int(_number(v)))
    yield "rounds", lambda v: round(_number(v), 1)


def _items(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError
    return cast("Any", value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


def _as(value: Any, items: list[Any]) -> Any:
    return items if isinstance(value, list) else tuple(items)


def _without_repetitions(value: Any) -> Any:
    return _as(value, list({repr(item): item for item in _items(value)}.values()))


def _without_runs(value: Any) -> Any:
    items = list(_items(value))
    return _as(value, [item for at, item in enumerate(items) if not at or item != items[at - 1]])


def changed_inputs(blind: Blind, inputs: Sequence[list[Any]]) -> list[list[Any] | None]:
    """What such a program goes by, for each input; None where it is the input itself."""
    found: list[list[Any] | None] = []
    for arguments in inputs:
        try:
            made = blind[1](list(arguments))
        except (TypeError, ValueError, AttributeError, OverflowError, IndexError):
            found.append(None)
            continue
        found.append(None if repr(made) == repr(arguments) else made)
    return found
