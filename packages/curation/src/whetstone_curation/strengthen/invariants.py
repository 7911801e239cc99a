"""Properties that all given inputs share and that new inputs keep: an order, distinct items, equal lengths.

A property of given values is believed if chance gives it to them with a probability below 1%. A new value
that lacks a believed property is changed until it has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, cycle, islice
from typing import Any, Literal, cast

from msgspec import Struct

_CHANCE = 0.01
_SEVERAL = 2
# Probability that two lengths are equal by chance.
_EQUAL_LENGTHS = 0.25
# People rarely write an item twice, so distinct items say less than chance tells.
_RARELY_REPEATED = 0.1
# Authors of tests sometimes forget that numbers must be a permutation.
_FEW = 0.25
# Inputs on which an inequality is no chance.
_MANY = 5
# Pairs of brackets that are surely no chance.
_MANY_PAIRS = 20
_BRACKETS = {")": "(", "]": "[", "}": "{"}

Items = list[Any]


class Property(Struct, frozen=True):
    """A property of lists or strings: a test, the probability that chance gives it to all of some values, a
    change that gives it to a list of items or characters, and the share of given values that may lack it."""

    holds: Callable[[Any], bool]
    chance: Callable[[Sequence[Any]], float]
    repair: Callable[[Items], Items]
    exceptions: float = 0.0


def properties_of(values: Sequence[Any], kind: str) -> tuple[str, ...]:
    """Return the names of the properties that all values have, and not by chance.

    kind: ``list``, ``str`` or ``tuple``; values of other types have none.
    """
    names = {
        "list": _OF_LISTS,
        "str": _OF_STRINGS,
        "tuple": _OF_PAIRS,
    }.get(kind, ())
    return tuple(name for name in names if _believed(PROPERTIES[name], values))


def with_properties(names: Sequence[str], items: Items) -> Items:
    """Return the items of a list, or the characters of a string, changed so that the properties hold."""
    for name in names:
        items = PROPERTIES[name].repair(items) if items else items
    return items


def is_grid(names: Sequence[str]) -> bool:
    """Return whether the properties are those of square grids, which are not empty."""
    return "square" in names or "numbered square" in names


def has_rows(names: Sequence[str]) -> bool:
    """Return whether the properties are those of grids of any form."""
    return is_grid(names) or "rows of equal length" in names


def are_distinct(values: Sequence[Sequence[Any]]) -> bool:
    """Return whether no value has an item twice."""
    return not any(item in value[:at] for value in values for at, item in enumerate(value))


def _believed(found: Property, values: Sequence[Any]) -> bool:
    try:
        having = [value for value in values if found.holds(value)]
        few = len(values) - len(having) <= found.exceptions * len(values)
        return few and found.chance(having) < _CHANCE
    except TypeError:  # items that cannot be compared
        return False


def ordered(items: Items) -> Items:
    """Return the items in their order, or as they are if they have none."""
    try:
        return sorted(items)
    except TypeError:
        return items


def almost_ordered(items: Items) -> Items:
    """Return the ordered items with the last two exchanged."""
    made = ordered(items)
    return [*made[:-2], *made[:-3:-1]]


def rotated(items: Items) -> Items:
    """Return the ordered items with the first third moved to the end."""
    made = ordered(items)
    return made[len(made) // 3 :] + made[: len(made) // 3]


def _distinct(items: Items) -> Items:
    return [item for at, item in enumerate(items) if item not in items[:at]]


def _distinct_by_chance(values: Sequence[Sequence[Any]]) -> float:
    known = len({repr(item) for value in values for item in value})
    likely = math.prod(max(known - at, 0) / known for value in values for at in range(len(value)))
    return likely / _RARELY_REPEATED


def _are_rows(value: Any) -> bool:
    return all(isinstance(row, list) for row in value) and len({len(row) for row in value}) <= 1


def _rows(items: Items, width: int) -> Items:
    """Return rows of this width, with repeated or without their last items."""
    filled = next((row for row in items if row), [0])
    return [list(islice(cycle(row or filled), width)) for row in items]


def _are_numbered(items: Sequence[Any], first: int) -> bool:
    whole = all(type(item) is int for item in items)
    return whole and sorted(items) == list(range(first, first + len(items)))


def _numbered(items: Items, first: int) -> Items:
    """Return the rank of each item."""
    order = sorted(range(len(items)), key=lambda at: (items[at], at))
    return [rank for _, rank in sorted(zip(order, range(first, first + len(items)), strict=True))]


def _is_square(value: Any) -> bool:
    return all(isinstance(row, list) and len(cast("Items", row)) == len(value) for row in value)


def _is_numbered_square(value: Any) -> bool:
    return _is_square(value) and _are_numbered(list(chain.from_iterable(value)), 1)


def _numbered_square(items: Items) -> Items:
    flat = _numbered(list(chain.from_iterable(_rows(items, len(items)))), 1)
    return [flat[at : at + len(items)] for at in range(0, len(flat), len(items))]


def _in_pairs(items: Sequence[str]) -> Items:
    """Return the characters without the brackets that have no partner."""
    open_, kept = list[int](), set(range(len(items)))
    for at, character in enumerate(items):
        if character in _BRACKETS.values():
            open_.append(at)
        elif character in _BRACKETS:
            if open_ and items[open_[-1]] == _BRACKETS[character]:
                open_.pop()
            else:
                kept.discard(at)
    return [items[at] for at in sorted(kept - {*open_})]


def _words_in_pairs(items: Sequence[str]) -> Items:
    words = "".join(items).split(" ")
    return list(" ".join("".join(_in_pairs(word)) for word in words))


def _in_pairs_by_chance(texts: Sequence[str]) -> float:
    """Return the probability that random brackets of one type are in pairs, from Catalan numbers."""
    pairs = [min(sum(map(text.count, _BRACKETS)), _MANY_PAIRS) for text in texts]
    return math.prod(math.comb(2 * n, n) / (n + 1) / 4**n for n in pairs)


def _single_blanks(items: Items) -> Items:
    """Return the characters without blanks at the ends and after another blank."""
    return list(" ".join("".join(items).split()))


def _is_below(value: Sequence[Any]) -> bool:
    return len(value) == 2 and all(type(item) is int for item in value) and value[0] < value[1]


def _below(items: Items) -> Items:
    """Return a pair of numbers in ascending order, the second of equal ones larger by one."""
    one, other = items
    return [one, one + 1] if one == other else sorted(items)


def _factorials(values: Sequence[Sequence[Any]]) -> float:
    return math.prod(1 / math.factorial(min(len(value), 20)) for value in values)


def _equal_by_chance(sizes: Sequence[int]) -> float:
    return _EQUAL_LENGTHS ** sum(max(0, size) for size in sizes)


PROPERTIES: dict[str, Property] = {
    "rows of equal length": Property(
        _are_rows,
        lambda values: _equal_by_chance([len(value) - 1 for value in values]),
        lambda items: _rows(items, len(next((row for row in items if row), [0]))),
    ),
    "square": Property(
        _is_square,
        lambda values: _equal_by_chance([len(value) for value in values]),
        lambda items: _rows(items, len(items)),
    ),
    "numbered square": Property(
        _is_numbered_square,
        lambda values: _factorials([range(len(value) ** 2) for value in values]),
        _numbered_square,
        _FEW,
    ),
    "permutation from 0": Property(
        lambda value: _are_numbered(value, 0), _factorials, lambda items: _numbered(items, 0), _FEW
    ),
    "permutation from 1": Property(
        lambda value: _are_numbered(value, 1), _factorials, lambda items: _numbered(items, 1), _FEW
    ),
    "distinct": Property(lambda value: are_distinct([value]), _distinct_by_chance, _distinct),
    "ordered": Property(lambda value: value == sorted(value), _factorials, ordered),
    "brackets in pairs": Property(
        lambda text: _in_pairs(text) == list(text),
        _in_pairs_by_chance,
        _in_pairs,
    ),
    "brackets of words in pairs": Property(
        lambda text: _words_in_pairs(text) == list(text),
        _in_pairs_by_chance,
        _words_in_pairs,
    ),
    "single blanks": Property(
        lambda text: list(text) == _single_blanks(list(text)),
        lambda texts: 0.0 if sum(list(text).count(" ") for text in texts) > _SEVERAL else 1.0,
        _single_blanks,
    ),
    "first below second": Property(_is_below, lambda values: 0.5 ** len(values), _below),
}
_OF_STRINGS = ("brackets in pairs", "brackets of words in pairs", "single blanks")
_OF_PAIRS = ("first below second",)
_OF_LISTS = tuple(name for name in PROPERTIES if name not in (*_OF_STRINGS, *_OF_PAIRS))


class Relation(Struct, frozen=True):
    """A relation between arguments in all given inputs: number ``one`` is, or is at most, the length of
    ``other`` (``is_length``, ``at_most``), or ``one`` is longer than ``other`` by ``difference`` items
    (``lengths``)."""

    kind: Literal["is_length", "at_most", "lengths"]
    one: int
    other: int
    difference: int = 0


def relations_of(inputs: Sequence[Sequence[Any]]) -> list[Relation]:
    """Return the relations between arguments that hold for all inputs, if these are enough to believe it."""
    found: list[Relation] = []
    for one in range(len(inputs[0])):
        for other in range(len(inputs[0])):
            pairs = [(given[one], given[other]) for given in inputs]
            if one == other or not all(isinstance(b, str | list | tuple) for _, b in pairs):
                continue
            if all(type(a) is int for a, _ in pairs):
                if len({a for a, _ in pairs}) >= _SEVERAL and all(a == len(b) for a, b in pairs):
                    found.append(Relation("is_length", one, other))
                elif len(pairs) >= _MANY and all(0 <= a <= len(b) for a, b in pairs):
                    found.append(Relation("at_most", one, other))
            elif one < other and all(isinstance(value, list | str) for pair in pairs for value in pair):
                lengths = {(len(a), len(b)) for a, b in pairs}
                differences = {a - b for a, b in lengths}
                if len(lengths) >= _SEVERAL and len(differences) == 1:
                    found.append(Relation("lengths", one, other, differences.pop()))
    return found


def with_relations(relations: Sequence[Relation], arguments: list[Any]) -> list[Any]:
    """Return the arguments, changed so that the relations hold, as far as their lengths allow it."""
    made = list(arguments)
    for relation in relations:
        one, other = made[relation.one], made[relation.other]
        if not isinstance(other, str | list | tuple):
            continue
        if relation.kind == "lengths":
            if isinstance(one, list | str):
                items = cast("Items", one)
                size = min(len(items) - relation.difference, len(other))
                made[relation.one] = items[: max(0, size + relation.difference)]
                made[relation.other] = cast("Any", other[: max(0, size)])
        elif relation.kind == "is_length":
            made[relation.one] = len(other)
        elif type(one) is int:
            made[relation.one] = max(0, min(one, len(other)))
    return made
