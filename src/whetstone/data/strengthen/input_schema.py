"""What the values at one place of the inputs have in common: types, signs, lengths, letters.

A new value has to look like those that are there: where all numbers are positive, it is; where every list is
sorted, it is. What the statement says goes before what was seen, unless what was seen contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct, field

from whetstone.data.strengthen.statement_constraints import Range, StatementConstraints

# Tuples of one length, up to this one, are records: each place has a shape of its own.
_RECORD = 6
# So few different values, in several times as many, are all that there are.
_FEW = 3
_ENOUGH = 4
_MANY_SORTED = 5
_FEW_WORDS = 12
_NUMBERS = re.compile(r"\d+")


class Shape(Struct):
    """Of the values at one place. ``kind`` is the name of their type, ``mixed`` for several: those are only
    taken over. ``low`` and ``high`` bound numbers, ``shortest`` and ``longest`` lengths."""

    kind: str
    seen: list[Any]
    low: float = 0
    high: float = 0
    fractions: bool = False
    shortest: int = 0
    longest: int = 0
    said: Range | None = None
    letters: str = ""
    items: Shape | None = None
    places: list[Shape] = field(default_factory=lambda: list[Shape]())
    keys: Shape | None = None
    even: bool = False
    """All items have the same length: rows of a table."""
    ordered: int = 0
    """1: sorted; -1: sorted downwards; 0: neither."""
    distinct: bool = False
    closed: bool = False
    """``seen`` is all that there is."""
    template: bool = False
    """Texts that differ in their numbers alone."""
    tidy: bool = False
    """Words of a text have one blank between them, and none stands at its ends."""
    balanced: bool = False
    """Brackets are opened and closed."""
    words: list[str] = field(default_factory=lambda: list[str]())
    """All words that texts are made of, where they are few."""


def shape_of(
    values: Sequence[Any], said: StatementConstraints, name: str = "", *, inside: bool = False
) -> Shape:
    """The shape of values at one place, of which there is one at least; ``inside`` a container."""
    kinds = {kind_of(value) for value in values}
    if kinds == {"int", "float"}:
        kinds = {"float"}
    shape = Shape("mixed" if len(kinds) != 1 else kinds.pop(), _different(values))
    if shape.kind in ("int", "float"):
        _look_at_numbers(shape, values, said, name, inside=inside)
    elif shape.kind == "str":
        _look_at_texts(shape, cast("Sequence[str]", values), said, name)
    elif shape.kind in ("list", "tuple", "set"):
        _look_at_items(shape, values, said, name)
    elif shape.kind == "dict":
        _look_at_dicts(shape, cast("Sequence[dict[Any, Any]]", values), said, name)
    return shape


def kind_of(value: object) -> str:
    """The type's name; every other than those of plain data is ``other``."""
    name = type(value).__name__
    return (
        name
        if name in ("bool", "int", "float", "str", "list", "tuple", "set", "dict", "NoneType")
        else "other"
    )


def length_of(shape: Shape, said: StatementConstraints) -> tuple[int, int]:
    """The shortest and the longest that a new value may be."""
    fixed = shape.shortest == shape.longest and (shape.longest == 1 or len(shape.seen) >= _FEW)
    if shape.kind == "str" and fixed and shape.said is None:  # letters, dates, codes
        return shape.longest, shape.longest
    low, high = (shape.said.low, shape.said.high) if shape.said else (None, None)
    if low is None:
        may_be_empty = shape.shortest == 0 or (said.empty and not said.never_empty)
        low = 0 if may_be_empty else min(shape.shortest, 1 if shape.kind != "str" else shape.shortest)
    return low, max(high if high is not None else max(2 * shape.longest, shape.longest + 4), low)


def bounds_of(shape: Shape) -> tuple[float, float]:
    """The least and the greatest that a new number may be, as far as is known."""
    return shape.low, shape.high


def _look_at_numbers(
    shape: Shape, values: Sequence[Any], said: StatementConstraints, name: str, *, inside: bool
) -> None:
    low, high = min(values), max(values)
    shape.fractions = any(
        isinstance(value, float) and not value.is_integer() for value in values if abs(value) < 1e15
    )
    shape.closed = inside and len(shape.seen) <= _FEW and len(values) >= _ENOUGH * len(shape.seen)
    known = said.range_of(name, "items" if inside else "value")
    if known and known.low <= low and high <= known.high:
        shape.said, shape.low, shape.high = known, known.low, known.high
        return
    shape.low = _least(low, said, inside=inside)
    reach = max(abs(low), abs(high))
    shape.high = max(2 * high, high + 10) if high > 0 else (2 * reach + 10 if low < 0 else 10)
    if shape.low < 0:
        shape.low = min(shape.low, -max(2 * abs(low), reach, 10))


def _least(low: float, said: StatementConstraints, *, inside: bool) -> float:
    """How low numbers may go, where nothing bounds them by name."""
    if low < 0 or (said.negative and not said.positive and not said.non_negative):
        return min(low, -10)
    if low == 0 or (said.zero and not said.positive):
        return 0
    return 1 if inside or low <= 20 else low // 2


def _look_at_texts(shape: Shape, values: Sequence[str], said: StatementConstraints, name: str) -> None:
    lengths = [len(value) for value in values]
    shape.shortest, shape.longest = min(lengths), max(lengths)
    known = said.range_of(name, "length")
    if known and known.low <= shape.shortest and shape.longest <= known.high:
        shape.said = known
    bare = {_NUMBERS.sub("0", value) for value in shape.seen}
    # Of one length, as dates are, or with words around the numbers.
    worded = any(letter.isalpha() for letter in "".join(bare)) or shape.shortest == shape.longest
    shape.template = len(shape.seen) > 1 and len(bare) == 1 and "0" in next(iter(bare)) and worded
    spaced = [value for value in shape.seen if " " in value]
    shape.tidy = bool(spaced) and all("  " not in value and value == value.strip() for value in spaced)
    shape.balanced = any("(" in value or "[" in value for value in values) and all(map(is_balanced, values))
    tokens = [word for value in shape.seen for word in value.split()]
    few = sorted(set(tokens))
    shape.words = few if spaced and len(few) <= _FEW_WORDS and len(tokens) >= 2 * len(few) else []
    letters = {letter for value in values for letter in value}
    if any(letter.islower() for letter in letters) and not _few_letters(letters):
        letters |= set("abcdeorstuxyz")
    if any(letter.isupper() for letter in letters) and not _few_letters(letters):
        letters |= set("ABCDEORSTUXYZ")
    if sum(letter.isdigit() for letter in letters) > _FEW:
        letters |= set("0123456789")
    if said.any_letters and any(letter.isalpha() for letter in letters) and not _few_letters(letters):
        letters |= set("aeikzAEIKZ")
    shape.letters = "".join(sorted(letters))
    shape.closed = len(shape.seen) <= _FEW and len(values) >= _ENOUGH * len(shape.seen)


def is_balanced(text: str) -> bool:
    """Whether brackets are closed in the order in which they were opened."""
    opened: list[str] = []
    for letter in text:
        if letter in "([{<":
            opened.append(letter)
        elif letter in ")]}>" and (not opened or opened.pop() + letter not in ("()", "[]", "{}", "<>")):
            return False
    return not opened


def widened(shape: Shape) -> Shape:
    """The shape with letters of every sort in its texts, unless these are of few sorts."""
    plain = not (shape.closed or shape.template or shape.words or shape.balanced)
    if shape.kind == "str" and plain and not _few_letters(set(shape.letters)):
        shape.letters = "".join(sorted({*shape.letters, *"aekzAEKZ059 ,.!-"}))
    for inner in (shape.items, *shape.places):
        if inner is not None:
            widened(inner)
    return shape


def _few_letters(letters: set[str]) -> bool:
    """An alphabet of signs, such as brackets or digits of base 2, and no words."""
    return len([letter for letter in letters if letter.isalnum()]) <= _FEW


def _look_at_items(shape: Shape, values: Sequence[Any], said: StatementConstraints, name: str) -> None:
    lengths = [len(value) for value in values]
    shape.shortest, shape.longest = min(lengths), max(lengths)
    known = said.range_of(name, "length")
    if known and known.low <= shape.shortest and shape.longest <= known.high:
        shape.said = known
    everything = [item for value in values for item in _in_order(value)]
    if not everything:
        return
    if shape.kind == "tuple" and shape.shortest == shape.longest <= _RECORD and len(values) > 1:
        shape.places = [
            shape_of([value[at] for value in values], said, name, inside=True) for at in range(shape.longest)
        ]
        kinds = {place.kind for place in shape.places}
        if len(kinds) == 1 and kinds <= {"int", "float"} and shape.longest > 2:
            shape.places = []  # a row of numbers
    if len({kind_of(item) for item in everything} - {"bool"}) > 1 and not shape.places:
        numbers = {kind_of(item) for item in everything} <= {"int", "float"}
        if not numbers:
            shape.items = Shape("mixed", _different(everything))
            return
    shape.items = shape_of(everything, said, name, inside=True)
    if (
        shape.shortest == shape.longest == 2
        and len(values) >= _ENOUGH
        and shape.items.kind in ("int", "float")
    ):
        shape.ordered = int(all(one <= other for one, other in values))  # ends of an interval
    _look_at_order(shape, [value for value in values if len(value) > 1], said)


def _look_at_order(shape: Shape, values: Sequence[Any], said: StatementConstraints) -> None:
    assert shape.items is not None
    if shape.items.kind in ("list", "tuple", "str") and values:
        lengths = [{len(item) for item in value} for value in values]
        shape.even = all(len(found) == 1 for found in lengths) and shape.items.kind != "str"
    if shape.kind == "set" or shape.items.kind not in ("int", "float", "str") or len(values) < 2:
        return
    longer = [list(value) for value in values if len(value) > 2]
    # People write 1, 2, 3 where any list would do: it takes words, or many lists, to tell.
    telling = bool(longer) and (said.ordered or len(longer) >= _MANY_SORTED)
    if telling and all(value == sorted(value) for value in longer):
        shape.ordered = 1
    elif telling and all(value == sorted(value, reverse=True) for value in longer):
        shape.ordered = -1
    shape.distinct = said.distinct and all(len(set(value)) == len(value) for value in values)


def _look_at_dicts(
    shape: Shape, values: Sequence[dict[Any, Any]], said: StatementConstraints, name: str
) -> None:
    shape.shortest, shape.longest = min(map(len, values)), max(map(len, values))
    keys = [key for value in values for key in value]
    if keys:
        shape.keys = shape_of(keys, said, "", inside=True)
        shape.items = shape_of([item for value in values for item in value.values()], said, name, inside=True)


def _in_order(value: Any) -> list[Any]:
    return sorted(cast("set[Any]", value), key=repr) if isinstance(value, set) else list(value)


def _different(values: Sequence[Any]) -> list[Any]:
    return list({f"{type(value).__name__} {value!r}": value for value in values}.values())
