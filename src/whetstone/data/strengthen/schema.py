"""What the given inputs of a problem have in common: types, ranges, letters, sizes and relations."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

Kind = Literal["none", "bool", "int", "float", "str", "list", "tuple", "set", "dict", "mixed"]

# Strings of few different letters may have a meaning, such as brackets. Only these letters are used then.
FEW_LETTERS = 6
_SEVERAL = 2
# What all given collections have in common is believed if it is less likely than this by chance.
_CHANCE = 0.01
_CHANCE_DISTINCT = 0.001  # people rarely write an item twice
# Collections with the same length, from which on it is no chance.
_SAME_LENGTH = 4
_FEW_FIELDS = 3
# Inputs on which an inequality is no chance.
_MANY = 5
_SENTENCE_END = re.compile(r"[.;]\s|\n")
_CONDITION = re.compile(r"\b(?:if|when|while|for|return|otherwise|else|elif)\b", re.IGNORECASE)
_NUMBER = r"(-?\d+(?:\.\d+)?|10\s?\^\s?\d+)"


class Schema(Struct, frozen=True):
    """The values of one argument, or of the items of a collection.

    low, high: of numbers; least, most: their bounds in the statement. longest: of collections and strings.
    letters: of strings. template: the text that all strings have around their numbers, with ``{}`` in place
    of each number; empty if there is none. items: of lists, sets and tuples of different lengths, or the
    values of dictionaries; keys: of dictionaries. fixed: whether all are as long as the longest.
    fields: of tuples of one length. options: of values of different types. ordered, distinct: of every given
    list.
    """

    kind: Kind
    low: float = 0
    high: float = 0
    least: float = -math.inf
    most: float = math.inf
    longest: int = 0
    fixed: bool = False
    letters: str = ""
    template: str = ""
    items: Schema | None = None
    keys: Schema | None = None
    fields: tuple[Schema, ...] = ()
    options: tuple[Schema, ...] = ()
    ordered: bool = False
    distinct: bool = False


def schema_of(values: Sequence[Any], hint: str = "") -> Schema:
    """Return the schema of given values; ``hint`` is the text of the annotation, if there is one."""
    kinds = {_kind(value) for value in values}
    options = (
        [schema_of([value for value in values if _kind(value) == kind]) for kind in sorted(kinds)]
        if len(kinds) > 1
        else []
    )
    if kinds == {"int"} and "float" in hint:
        low, high = min(values), max(values)
        options = [Schema("int", low=low, high=high), Schema("float", low=low, high=high)]
    if ("Optional" in hint or "None" in hint) and kinds and "none" not in kinds:
        options = [*(options or [schema_of(values)]), Schema("none")]
    if options or not kinds:
        return Schema("mixed", options=tuple(options)) if options else Schema("none")
    [kind] = kinds
    if kind in ("int", "float"):
        return Schema(kind, low=min(values), high=max(values))
    if kind == "str":
        return _string_schema(values)
    if kind in ("none", "bool"):
        return Schema(kind)
    return _collection(_kind(values[0]), values, hint)


def bounded(schema: Schema, name: str, statement: str) -> Schema:
    """Return the schema of a number with the bounds that the statement names, such as ``1 <= n <= 100``.

    Comparisons in a sentence with a condition describe the answer. Bounds that a given input violates
    are not believed.
    """
    if schema.kind == "mixed":
        options = tuple(bounded(option, name, statement) for option in schema.options)
        return msgspec.structs.replace(schema, options=options)
    if schema.kind not in ("int", "float") or not name:
        return schema
    least, most = -math.inf, math.inf
    step = 1 if schema.kind == "int" else 0.01
    for sentence in _SENTENCE_END.split(statement):
        if _CONDITION.search(sentence):
            continue
        for found in re.finditer(rf"(?<![\w.]){re.escape(name)}\s*([<>≤≥]=?)\s*{_NUMBER}", sentence):
            number, strict = _number(found[2]), step if found[1] in "<>" else 0
            if found[1][0] in ">≥":
                least = max(least, number + strict)
            else:
                most = min(most, number - strict)
        for found in re.finditer(rf"{_NUMBER}\s*([<≤]=?)\s*{re.escape(name)}(?!\w)", sentence):
            least = max(least, _number(found[1]) + (step if found[2] == "<" else 0))
    if not least <= schema.low <= schema.high <= most:
        return schema
    return msgspec.structs.replace(schema, least=least, most=most)


def _number(text: str) -> float:
    base, power, exponent = text.partition("^")
    return float(base) ** int(exponent) if power else float(text)


def _string_schema(values: Sequence[str]) -> Schema:
    templates = {re.sub(r"\d+", "{}", value) for value in values}
    template = templates.pop() if len(templates) == 1 and len({*values}) > 1 else ""
    braces = {template.count(text) for text in ("{", "}", "{}")}
    if len(braces) == 1 and 0 not in braces and template != "{}":
        high = max(int(number) for value in values for number in re.findall(r"\d+", value))
        return Schema("str", high=high, template=template)
    return Schema("str", longest=max(map(len, values)), letters=_letters(values), fixed=_is_fixed(values))


def _collection(kind: Kind, values: Sequence[Any], hint: str) -> Schema:
    longest = max(map(len, values))
    if kind == "dict":
        keys = [key for value in values for key in value]
        items = [item for value in values for item in value.values()]
        return Schema(kind, longest=longest, keys=schema_of(keys), items=schema_of(items))
    one_length = len({len(value) for value in values}) == 1
    if kind == "tuple" and one_length and (longest <= _FEW_FIELDS or len(values) >= _SAME_LENGTH):
        return Schema(kind, longest=longest, fields=tuple(map(schema_of, zip(*values, strict=True))))
    items = [item for value in values for item in value]
    schema = schema_of(items, hint) if items else Schema("int", high=10)
    return Schema(
        kind,
        longest=longest,
        items=schema,
        fixed=_is_fixed(values),
        ordered=kind == "list" and _are_sorted(values),
        distinct=kind == "list" and are_distinct(values, chance=True),
    )


def _is_fixed(values: Sequence[Any]) -> bool:
    """Return whether enough different values have the same length."""
    return len({*map(repr, values)}) >= _SAME_LENGTH and len({*map(len, values)}) == 1


def _are_sorted(values: Sequence[Sequence[Any]]) -> bool:
    """Return whether all lists are sorted, and not by chance."""
    try:
        if any(list(value) != sorted(value) for value in values):
            return False
    except TypeError:
        return False
    return math.prod(1 / math.factorial(min(len(value), 20)) for value in values) < _CHANCE


def are_distinct(values: Sequence[Sequence[Any]], *, chance: bool = False) -> bool:
    """Return whether no list has an item twice. chance: and not by chance, if each were one of all items."""
    if any(item in value[:at] for value in values for at, item in enumerate(value)):
        return False
    if not chance:
        return True
    known = len({repr(item) for value in values for item in value})
    likelihood = math.prod(max(known - at, 0) / known for value in values for at in range(len(value)))
    return bool(known) and likelihood < _CHANCE_DISTINCT


def _kind(value: Any) -> Kind:
    name = "none" if value is None else type(value).__name__
    name = "set" if name == "frozenset" else name
    known = ("none", "bool", "int", "float", "str", "list", "tuple", "set", "dict")
    return cast("Kind", name) if name in known else "none"


def _letters(values: Sequence[str]) -> str:
    """Return the given letters, and those of the same classes if there are many."""
    seen = set("".join(values))
    if len(seen) <= FEW_LETTERS:
        return "".join(sorted(seen))
    for letters in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        if len(seen & set(letters)) > _SEVERAL:
            seen |= set(letters)
    return "".join(sorted(seen))


class Relation(Struct, frozen=True):
    """A relation that all given inputs have: argument ``one`` is, or is at most, the length of ``other``
    (``is_length``, ``at_most``), or both have the same length (``same``)."""

    kind: Literal["is_length", "at_most", "same"]
    one: int
    other: int


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
            elif one < other and _same_lengths(pairs):
                found.append(Relation("same", one, other))
    return found


def _same_lengths(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether both are lists of the same length, in inputs with several lengths."""
    if not all(isinstance(value, list) for pair in pairs for value in pair):
        return False
    lengths = [tuple(map(len, pair)) for pair in pairs]
    return len({*lengths}) >= _SEVERAL and all(one == other for one, other in lengths)


def mended(relations: Sequence[Relation], arguments: list[Any]) -> list[Any]:
    """Return the arguments, changed so that the relations hold."""
    made = list(arguments)
    for relation in relations:
        one, other = made[relation.one], made[relation.other]
        if not isinstance(other, str | list | tuple):
            continue
        if relation.kind == "same":
            if isinstance(one, list):
                size = min(len(cast("list[Any]", one)), len(other))
                made[relation.one], made[relation.other] = cast("Any", one[:size]), cast("Any", other[:size])
        elif relation.kind == "is_length":
            made[relation.one] = len(other)
        elif type(one) is int:
            made[relation.one] = max(0, min(one, len(other)))
    return made
