"""The types, ranges, letters and sizes of the given inputs of a problem, and the constants of its reference.

Inputs with these constants reach branches that other inputs rarely reach.
"""

from __future__ import annotations

import ast
import math
import re
import string
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from whetstone.core.problem import Program
from whetstone.core.syntax import NotPython, nodes
from whetstone.data.validate.runs import is_python
from whetstone_curation.strengthen.invariants import are_distinct, properties_of

Kind = Literal["none", "bool", "int", "float", "str", "list", "tuple", "set", "dict", "mixed"]

_SEVERAL, _FEW_LETTERS = 2, 6
# Given strings have no other letters of a class if chance explains this with a probability below this. People
# prefer some letters and digits, so it is small.
_CHANCE = 1e-4
# Collections with the same length, from which on it is no chance.
_SAME_LENGTH = 4
_FEW_FIELDS = 3
# Numbers that are all 0 or 1, from which on they are bits.
_MANY_BITS = 16
_DISTINCT = re.compile(r"\b(?:distinct|unique|permutation|no duplicates)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.;]\s|\n")
_CONDITION = re.compile(r"\b(?:if|when|while|for|return|otherwise|else|elif)\b", re.IGNORECASE)
_NUMBER = r"(-?\d+(?:\.\d+)?|10\s?\^\s?\d+)"


# Characters of a string of the reference, the number of its constants, and the largest of them.
_LONGEST_WORD, _MOST_CONSTANTS, _LARGEST = 40, 24, 1_000_000


class Schema(Struct, frozen=True):
    """The values of one argument, or of the items of a collection.

    low, high: of numbers; least, most: their bounds in the statement. longest: of collections and strings.
    letters: of strings; few: whether others have no meaning, as in texts of brackets. choices: all strings
    that there can be, such as operators; empty if not known. template: the text that all strings have around
    their numbers, with ``{}`` in place of each number; empty if there is none. words, numbers: constants of
    the reference. items: of lists, sets and tuples of different lengths, or the values of dictionaries; keys:
    of dictionaries. fixed: whether all are as long as the longest. fields: of tuples of one length. options:
    of values of different types. properties: of every given list or string.
    """

    kind: Kind
    low: float = 0
    high: float = 0
    least: float = -math.inf
    most: float = math.inf
    longest: int = 0
    fixed: bool = False
    letters: str = ""
    few: bool = False
    choices: tuple[str, ...] = ()
    template: str = ""
    items: Schema | None = None
    keys: Schema | None = None
    fields: tuple[Schema, ...] = ()
    options: tuple[Schema, ...] = ()
    properties: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()


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
    # The items of a collection that is always empty are not known.
    options = [
        msgspec.structs.replace(option, fixed=True) if option.items and not option.longest else option
        for option in options
    ]
    if options or not kinds:
        return Schema("mixed", options=tuple(options)) if options else Schema("none")
    [kind] = kinds
    if kind == "int" and {*values} == {0, 1} and len(values) >= _MANY_BITS:
        return Schema(kind, low=0, high=1, least=0, most=1)
    if kind in ("int", "float"):
        return Schema(kind, low=min(values), high=max(values))
    if kind == "str":
        return _string_schema(values)
    if kind in ("none", "bool"):
        return Schema(kind)
    return _collection(_kind(values[0]), values, hint)


def with_stated_properties(schema: Schema, values: Sequence[Any], statement: str) -> Schema:
    """Return the schema of a list whose items are distinct by the statement, if none of ``values``
    contradicts it."""
    if schema.kind == "list" and _DISTINCT.search(statement) and are_distinct(values):
        return msgspec.structs.replace(schema, properties=("distinct", *schema.properties))
    return schema


def with_stated_bounds(schema: Schema, name: str, statement: str) -> Schema:
    """Return the schema of a number with the bounds that the statement names, such as ``1 <= n <= 100``.

    name: of the argument; ``\\w+`` for any. Comparisons in a sentence with a condition describe the answer.
    Bounds that a given input violates are not believed.
    """
    if schema.kind == "mixed":
        options = tuple(with_stated_bounds(option, name, statement) for option in schema.options)
        return msgspec.structs.replace(schema, options=options)
    if schema.kind not in ("int", "float") or not name:
        return schema
    least, most = schema.least, schema.most
    step = 1 if schema.kind == "int" else 0.01
    for sentence in _SENTENCE_END.split(statement):
        if _CONDITION.search(sentence):
            continue
        for found in re.finditer(rf"(?<![\w.]){name}\s*([<>≤≥]=?)\s*{_NUMBER}", sentence):
            number, strict = _number(found[2]), step if found[1] in "<>" else 0
            if found[1][0] in ">≥":
                least = max(least, number + strict)
            else:
                most = min(most, number - strict)
        for found in re.finditer(rf"{_NUMBER}\s*([<≤]=?)\s*{name}(?!\w)", sentence):
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
    letters, few = _letters(values)
    return Schema(
        "str",
        longest=max(map(len, values)),
        letters=letters,
        few=few,
        choices=_choices(values),
        fixed=_is_fixed(values),
        properties=properties_of(values, "str"),
    )


def _choices(values: Sequence[str]) -> tuple[str, ...]:
    """Return the different strings, if they are symbols that repeat, such as ``+`` and ``**``."""
    different = sorted({*values})
    symbols = not any(map(str.isalnum, "".join(values))) and all(values)
    return tuple(different) if symbols and len(values) - len(different) >= _SEVERAL else ()


def _collection(kind: Kind, values: Sequence[Any], hint: str) -> Schema:
    longest = max(map(len, values))
    if kind == "dict":
        keys = [key for value in values for key in value]
        items = [item for value in values for item in value.values()]
        return Schema(kind, longest=longest, keys=schema_of(keys), items=schema_of(items))
    one_length = len({len(value) for value in values}) == 1
    if kind == "tuple" and one_length and (longest <= _FEW_FIELDS or len(values) >= _SAME_LENGTH):
        fields = tuple(map(schema_of, zip(*values, strict=True)))
        return Schema(kind, longest=longest, fields=fields, properties=properties_of(values, kind))
    items = [item for value in values for item in value]
    schema = schema_of(items, hint) if items else Schema("int", high=10)
    return Schema(
        kind,
        longest=longest,
        items=schema,
        fixed=_is_fixed(values),
        properties=properties_of(values, kind),
    )


def _is_fixed(values: Sequence[Any]) -> bool:
    """Return whether enough different values have the same length."""
    return len({*map(repr, values)}) >= _SAME_LENGTH and len({*map(len, values)}) == 1


def _kind(value: Any) -> Kind:
    name = "none" if value is None else type(value).__name__
    name = "set" if name == "frozenset" else name
    known = ("none", "bool", "int", "float", "str", "list", "tuple", "set", "dict")
    return cast("Kind", name) if name in known else "none"


def _letters(values: Sequence[str]) -> tuple[str, bool]:
    """Return the given letters, with those of their classes, and whether there are only few. A class is added
    unless it is unlikely that so many random letters of it are so few different ones."""
    text = "".join(values)
    seen = set(text)
    for letters in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        number, different = sum(map(text.count, letters)), len(seen & set(letters))
        size = len(letters)
        if different and math.comb(size, different) * (different / size) ** number > _CHANCE:
            seen |= set(letters)
    return "".join(sorted(seen)), not any(map(str.isalnum, seen)) or len(seen) <= _FEW_LETTERS


class Constants(Struct, frozen=True):
    """The strings and numbers of a program, without its documentation; each number with its neighbours."""

    words: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()


NO_CONSTANTS = Constants()


def constants_of(program: Program) -> Constants:
    """Return the constants of a program. It has none if it is not in Python."""
    if not is_python(program):
        return NO_CONSTANTS
    try:
        found = nodes(program.source)
    except NotPython:
        return NO_CONSTANTS
    documentation = {id(node.value) for node in found if isinstance(node, ast.Expr)}
    values = [
        node.value for node in found if isinstance(node, ast.Constant) and id(node) not in documentation
    ]
    words = [each for each in values if isinstance(each, str) and 0 < len(each) <= _LONGEST_WORD]
    numbers = [
        each + step
        for each in values
        if isinstance(each, int | float) and not isinstance(each, bool) and abs(each) <= _LARGEST
        for step in (0, -1, 1)
    ]
    return Constants(
        tuple(dict.fromkeys(words))[:_MOST_CONSTANTS], tuple(dict.fromkeys(numbers))[:_MOST_CONSTANTS]
    )


def with_constants(schema: Schema, constants: Constants) -> Schema:
    """Return the schema of values that may have these words, letters and numbers.

    Strings with few letters, fixed choices or a template have no others. White space is not added, because
    strings without it are often parts of a text that is split there.
    """

    def changed(part: Schema | None) -> Schema | None:
        return None if part is None else with_constants(part, constants)

    schema = msgspec.structs.replace(
        schema,
        items=changed(schema.items),
        keys=changed(schema.keys),
        fields=tuple(map(changed, schema.fields)),
        options=tuple(map(changed, schema.options)),
    )
    if schema.kind == "int":
        return msgspec.structs.replace(
            schema, numbers=tuple(n for n in constants.numbers if isinstance(n, int))
        )
    if schema.kind == "float":
        return msgspec.structs.replace(schema, numbers=constants.numbers)
    if schema.kind != "str" or schema.few or schema.choices or schema.template:
        return schema
    marks = {letter for word in constants.words for letter in word if not letter.isspace()}
    letters = "".join(sorted({*schema.letters, *marks}))
    return msgspec.structs.replace(schema, letters=letters, words=constants.words)
