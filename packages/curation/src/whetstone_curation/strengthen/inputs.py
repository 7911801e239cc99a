"""New inputs for a problem: boundary values of each type, changed given inputs, and draws by Hypothesis."""

from __future__ import annotations

import atexit
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, cast

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from whetstone.core.syntax import parsing
from whetstone_curation.strengthen.invariants import (
    almost_ordered,
    has_rows,
    is_grid,
    ordered,
    relations_of,
    rotated,
    with_properties,
    with_relations,
)
from whetstone_curation.strengthen.schema import (
    NO_CONSTANTS,
    Constants,
    Schema,
    schema_of,
    with_constants,
    with_stated_bounds,
    with_stated_properties,
)
from whetstone_curation.strengthen.texts import BEFORE_OTHER, Strategy, joined_words, rich_text, string_edges

# Characters of an input as text; see ``large`` for longer ones.
_LONGEST_TEXT = 3_000
_LARGE = 3_000
# Sizes of collections and strings that ``rich`` makes, and of the collections in these.
_RICH_SIZES = (10, 12, 16, 24, 40, 130)
_RICH_INNER = 9
_NARROW = 6
# Properties that are often only a habit of authors.
_HABITS = ("distinct", "single blanks")
# Numbers with repeated digits, and neighbours of a power of ten.
_DIGIT_PATTERNS = (11, 22, 99, 100, 101, 110, 111, 121, 211, 999, 1000, 1001)
# Given inputs whose arguments are exchanged.
_EXCHANGED = 8
_MOST_EXAMPLES = 2
_POSITIVE = re.compile(r"\bpositive\b|\bnatural number", re.IGNORECASE)
_NOT_NEGATIVE = re.compile(r"\bnon-?\s?negative\b", re.IGNORECASE)

_HEALTH_CHECKS = cast("list[HealthCheck]", list(HealthCheck))


class Inputs:
    """Makes inputs like ``seeds``, of which there is at least one, all with the same number of arguments.

    statement: of the problem; where it speaks of positive or non-negative numbers, there are no others,
    unless given inputs have them. hints: the arguments as they are declared. wide: also with negative
    numbers and repeated items, if no given input has any, and with ``constants`` of the reference.
    other_letters: letters that strings may have, too, unless given strings have only few different ones.
    """

    def __init__(
        self,
        seeds: Sequence[Sequence[Any]],
        statement: str,
        hints: Sequence[str],
        draw_seed: str,
        *,
        wide: bool = False,
        other_letters: str = "",
        constants: Constants = NO_CONSTANTS,
    ) -> None:
        self._seeds = [list(given) for given in seeds]
        self._relations = relations_of(self._seeds)
        self._draw_seed = draw_seed
        self._least = 1 if _POSITIVE.search(statement) else 0 if _NOT_NEGATIVE.search(statement) else None
        self._wide, self._other_letters = wide, other_letters
        width = len(self._seeds[0])
        self._schemas: list[Schema] = []
        for at, hint in enumerate([*hints, *[""] * width][:width]):
            name, _, annotation = hint.partition(":")
            values = [given[at] for given in self._seeds]
            # The bounds of a statement often have another name than the only argument.
            name = re.escape(name) if width > 1 else r"\w+"
            schema = schema_of(values, annotation)
            if wide:
                schema = with_constants(_widened(schema), constants)
            self._schemas.append(
                with_stated_properties(with_stated_bounds(schema, name, statement), values, statement)
            )

    def candidates(self, count: int) -> list[list[Any]]:
        """Return up to ``count`` different inputs that are not given: boundaries first."""
        found = {repr(given): given for given in self._seeds}
        known = len(found)
        for made in self._each(count):
            arguments = with_relations(self._relations, made)
            text = repr(arguments)
            if len(text) <= _LONGEST_TEXT:
                found.setdefault(text, arguments)
            if len(found) - known >= count:
                break
        return list(found.values())[known:]

    def large(self, count: int) -> list[list[Any]]:
        """Return inputs with long collections and strings, for programs that are slow."""
        sized = [self._strategy(schema, _LARGE) for schema in self._schemas]
        made = [
            with_relations(self._relations, drawn)
            for drawn in self._drawn(st.tuples(*sized).map(list), count)
        ]
        return made if any(schema.longest for schema in self._schemas) else []

    def rich(self, count: int) -> list[list[Any]]:
        """Return different inputs with long collections and strings that repeat their items."""
        if not any(map(_has_size, self._schemas)):
            return []
        sizes = st.sampled_from(_RICH_SIZES)
        sized = sizes.flatmap(lambda size: st.tuples(*[self._rich(each, size) for each in self._schemas]))
        found: dict[str, list[Any]] = {}
        for drawn in self._drawn(sized.map(list), count):
            arguments = with_relations(self._relations, drawn)
            if len(text := repr(arguments)) <= _LONGEST_TEXT:
                found.setdefault(text, arguments)
        return list(found.values())

    def _each(self, count: int) -> Iterator[list[Any]]:
        yield from self._boundaries()
        ordinary = st.tuples(*[self._strategy(schema) for schema in self._schemas]).map(list)
        yield from self._drawn(st.one_of(self._changed(), self._changed(), ordinary), count * _MOST_EXAMPLES)

    def _boundaries(self) -> Iterator[list[Any]]:
        """Each boundary value with the other arguments of a given input, given inputs with arguments of one
        type exchanged, then boundary values together."""
        edges = [
            self._edges(schema, [given[at] for given in self._seeds])
            for at, schema in enumerate(self._schemas)
        ]
        for at, values in enumerate(edges):
            for number, value in enumerate(values):
                made = deepcopy(self._seeds[number % len(self._seeds)])
                made[at] = value
                yield made
        kinds = [(schema.kind, schema.items and schema.items.kind) for schema in self._schemas]
        pairs = [(a, b) for b in range(len(kinds)) for a in range(b) if kinds[a] == kinds[b]]
        for one, (a, b) in itertools.product(self._seeds[:_EXCHANGED], pairs):
            made = deepcopy(one)
            made[a], made[b] = made[b], made[a]
            yield made
        if len(edges) > 1 and all(edges):
            for number in range(max(map(len, edges))):
                yield [values[number % len(values)] for values in edges]

    def _drawn(self, strategy: Strategy, count: int) -> list[list[Any]]:
        """Return values of a strategy, the same for the same seed."""
        found: list[Any] = []
        _set_hypothesis_folder()

        @seed(self._draw_seed)
        @settings(
            max_examples=max(1, count),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=_HEALTH_CHECKS,
        )
        @given(strategy)
        def collect(value: Any) -> None:
            found.append(deepcopy(value))

        with parsing():  # Hypothesis parses modules of this program, which no two threads may do at once
            collect()
        return found

    def _bounds(self, schema: Schema) -> tuple[int, int]:
        """Return the least and the largest number to draw."""
        high = int(max(2 * abs(schema.high), abs(schema.low), schema.high + 10))
        high = max((high, *schema.numbers))
        low = -high if schema.low < 0 else int(min(schema.low, 1))
        if self._wide and schema.low >= 0:
            low = -high if self._least is None else self._least
        return math.ceil(max(low, schema.least)), math.floor(min(high, schema.most))

    def _letters(self, schema: Schema) -> str:
        """Return the letters of strings."""
        if self._other_letters and not schema.few:
            return "".join(sorted({*schema.letters, *self._other_letters}))
        return schema.letters or "ab"

    def _strategy(self, schema: Schema, size: int = 0) -> Strategy:
        """Return a strategy for values of a schema. size: of collections; 0: about as given."""
        longest = schema.longest if schema.fixed else size or max(schema.longest + 4, 2 * schema.longest)
        shortest = schema.longest if schema.fixed else max(size, is_grid(schema.properties))
        match schema.kind:
            case "bool":
                return st.booleans()
            case "int":
                low, high = self._bounds(schema)
                return st.integers(low, high)
            case "float":
                low, high = self._bounds(schema)
                halves = st.integers(2 * low, 2 * high).map(lambda number: number / 2)
                return halves | st.integers(100 * low, 100 * high).map(lambda number: number / 100)
            case "str" if schema.template:
                numbers = [st.integers(0, int(2 * schema.high + 10))] * schema.template.count("{}")
                return st.tuples(*numbers).map(lambda drawn: schema.template.format(*drawn))
            case "str" if schema.choices:
                return st.sampled_from(schema.choices)
            case "str":
                texts = st.text(self._letters(schema), min_size=shortest, max_size=longest)
                return self._text(schema, texts | joined_words(schema) if schema.words else texts)
            case "mixed":
                return st.one_of([self._strategy(option, size) for option in schema.options])
            case "tuple" if schema.fields:
                return self._row(schema, [self._strategy(field) for field in schema.fields])
            case "dict":
                assert schema.keys is not None
                assert schema.items is not None
                pairs = self._strategy(schema.keys), self._strategy(schema.items)
                return st.dictionaries(*pairs, max_size=longest)
            case "list" | "tuple" | "set":
                assert schema.items is not None
                return self._collections(schema, self._strategy(schema.items), shortest, longest)
            case _:
                return st.none()

    def _rich(self, schema: Schema, size: int) -> Strategy:
        """Return a strategy for collections of ``size`` items with repetitions, and for other values."""
        if schema.fixed and not schema.items:
            return self._strategy(schema)
        if schema.kind == "str" and not schema.template and not schema.choices:
            shortest = size if size > _RICH_INNER else 1
            return self._text(schema, rich_text(self._letters(schema), shortest, size + size // 2 + 2))
        if schema.kind in ("int", "float"):
            low, high = self._bounds(schema)
            near = max(low, 0) if high >= 0 else high
            patterns = [n for each in _DIGIT_PATTERNS for n in (each, -each) if low <= n <= high]
            narrow = st.integers(near, min(high, near + _NARROW))
            repeated = [st.sampled_from(patterns)] if patterns else []
            return st.one_of(self._strategy(schema), narrow, *repeated)
        if schema.kind == "mixed":
            return st.one_of([self._rich(option, size) for option in schema.options])
        if schema.kind == "tuple" and schema.fields:
            return self._row(schema, [self._rich(field, _RICH_INNER) for field in schema.fields])
        if schema.items is None or (schema.fixed and not schema.longest):
            return self._strategy(schema)
        values = self._rich(schema.items, _RICH_INNER)
        if schema.kind == "dict":
            assert schema.keys is not None
            return st.lists(st.tuples(self._strategy(schema.keys), values), min_size=size, max_size=size).map(
                dict
            )
        if schema.fixed:
            size = schema.longest
        some = st.lists(values, min_size=(size + 1) // 2, max_size=size)
        items = some.flatmap(lambda pool: st.lists(st.sampled_from(pool), min_size=size, max_size=size))
        if "distinct" in schema.properties:
            items = st.lists(self._strategy(schema.items), min_size=size, max_size=2 * size)
        if schema.kind == "set":
            return items.map(set)
        orders = st.sampled_from((list, list, ordered, almost_ordered, rotated))
        lists = st.tuples(orders, items).map(lambda drawn: drawn[0](_arranged(schema, drawn[1])))
        lists = lists.map(lambda value: with_properties(schema.properties, value))
        return lists.map(tuple) if schema.kind == "tuple" else lists

    def _row(self, schema: Schema, fields: list[Strategy]) -> Strategy:
        """Return the strategy for tuples of these fields, with the properties of given tuples."""
        return st.tuples(*fields).map(lambda row: tuple(with_properties(schema.properties, list(row))))

    def _text(self, schema: Schema, texts: Strategy) -> Strategy:
        """Return the strategy with the properties that given strings have."""
        return texts.map(lambda text: _arranged_text(schema, text)) if schema.properties else texts

    def _collections(self, schema: Schema, items: Strategy, shortest: int, longest: int) -> Strategy:
        if schema.kind == "set":
            return st.sets(items, max_size=longest)
        lists: Strategy = st.lists(items, min_size=shortest, max_size=longest)
        if schema.kind == "tuple":
            return lists.map(tuple)
        return lists.map(lambda value: _arranged(schema, value))

    def _edges(self, schema: Schema, seen: Sequence[Any]) -> list[Any]:
        """Return the boundary values of a schema."""
        low, high = self._bounds(schema) if schema.kind in ("int", "float") else (0, 0)
        match schema.kind:
            case "bool":
                return [False, True]
            case "int":
                edges = (0, 1, 2, -1, low, schema.low, schema.high, high, 10, 100, *schema.numbers)
                return [n for n in edges if low <= n <= high]
            case "float":
                edges = (0.0, 1.0, -1.0, 0.5, 0.001, float(low), float(high), *schema.numbers)
                return [n for n in edges if low <= n <= high]
            case "str" if schema.choices:
                return list(schema.choices)
            case "str" if schema.template:
                width = schema.template.count("{}")
                return [schema.template.format(*[number] * width) for number in (0, 1, int(schema.high), 100)]
            case "str":
                texts = [text for text in seen if isinstance(text, str)]
                edges = string_edges(schema, self._letters(schema), texts)
                return [_arranged_text(schema, text) for text in edges]
            case "mixed":
                return [edge for option in schema.options for edge in self._edges(option, seen)]
            case "list" | "tuple" | "set" | "dict" if not schema.fields:
                return self._collection_edges(schema, seen)
            case "none":
                return [None]
            case _:
                return []

    def _collection_edges(self, schema: Schema, seen: Sequence[Any]) -> list[Any]:
        assert schema.items is not None
        items = self._edges(
            schema.items,
            [item for value in seen if isinstance(value, list | tuple) for item in cast("Any", value)],
        )
        if schema.kind == "dict":
            given = [value for value in seen if isinstance(value, dict)]
            return [{}, *({key: value} for each in given[:1] for key, value in cast("Any", each).items())]
        if schema.kind == "set":
            return [set[Any](), *[{item} for item in items[:3]]]
        lists = [list(cast("Any", each)) for each in seen if isinstance(each, list | tuple)]
        longest = max(lists, key=len, default=[])
        made: list[list[Any]] = [[], *([item] for item in items[:4]), *([item] * 3 for item in items[:3])]
        made += [longest[::-1], longest[1:], longest[:-1], longest[:1] + longest, longest + longest]
        made += [items, items[::-1], [*longest, *items[:2]], [*items[:1] * BEFORE_OTHER, *items[1:2]]]
        made += [ordered(longest), ordered(longest)[::-1]]
        whole = tuple if schema.kind == "tuple" else list
        some = schema.fixed or is_grid(schema.properties)
        return [whole(_arranged(schema, value)) for value in made if value or not some]

    def _changed(self) -> Strategy:
        """Return a strategy for given inputs with a few changes."""
        schemas = self._schemas

        @st.composite
        def changed(draw: st.DrawFn) -> list[Any]:
            made = deepcopy(draw(st.sampled_from(self._seeds)))
            for _ in range(draw(st.integers(1, 3))):
                at = draw(st.integers(0, len(made) - 1))
                made[at] = self._change(draw, schemas[at], made[at])
            return made

        return changed()

    def _change(self, draw: st.DrawFn, schema: Schema, value: Any) -> Any:
        """Return a value near a given one."""
        if isinstance(value, bool) or schema.kind in ("bool", "mixed", "none"):
            return draw(self._strategy(schema))
        if isinstance(value, int | float) and schema.kind in ("int", "float"):
            low, high = self._bounds(schema)
            steps = [1, -1, 2, -2, 10, -value, value, 0.5 if schema.kind == "float" else 3]
            step = draw(st.sampled_from(steps))
            return min(max(value + step, low), high)
        if isinstance(value, str) and schema.letters and not schema.choices:
            changed = self._change_items(draw, list(value), st.sampled_from(schema.letters), None)
            return _arranged_text(schema, changed)
        if isinstance(value, list | tuple) and schema.items is not None:
            strategy = self._strategy(schema.items)
            items = self._change_items(draw, list(cast("Any", value)), strategy, schema.items)
            if not items and is_grid(schema.properties):
                return value
            return type(value)(_arranged(schema, items))
        return draw(self._strategy(schema))

    def _change_items(
        self, draw: st.DrawFn, items: list[Any], strategy: Strategy, schema: Schema | None
    ) -> list[Any]:
        if not items:
            return [draw(strategy)]
        at = draw(st.integers(0, len(items) - 1))
        other = draw(st.integers(0, len(items) - 1))
        changes = ["remove", "repeat", "insert", "replace", "swap", "copy", "change", "reverse"]
        match draw(st.sampled_from(changes)):
            case "remove":
                return items[:at] + items[at + 1 :]
            case "repeat":
                return [*items[:at], items[at], *items[at:]]
            case "insert":
                return [*items[:at], draw(strategy), *items[at:]]
            case "swap":
                items[at], items[other] = items[other], items[at]
            case "copy":
                items[at] = deepcopy(items[other])
            case "reverse":
                items = items[::-1]
            case "change" if schema is not None:
                items[at] = self._change(draw, schema, items[at])
            case _:
                items[at] = draw(strategy)
        return items


def _widened(schema: Schema) -> Schema:
    """Return the schema without properties that are often habits of authors: ``_HABITS``, and one size of all
    grids."""
    properties = tuple(each for each in schema.properties if each not in _HABITS)
    if schema.kind == "list" and has_rows(properties) and schema.items is not None:
        rows = msgspec.structs.replace(schema.items, fixed=False)
        schema = msgspec.structs.replace(schema, fixed=False, items=rows)
    return msgspec.structs.replace(schema, properties=properties)


def _has_size(schema: Schema) -> bool:
    return schema.kind in ("list", "set", "dict", "tuple", "mixed") or (
        schema.kind == "str" and not schema.template
    )


@cache
def _set_hypothesis_folder() -> None:
    """Let Hypothesis keep its files in a folder that ends with this process, not in the working folder."""
    folder = TemporaryDirectory(prefix="whetstone-hypothesis-")
    atexit.register(folder.cleanup)
    set_hypothesis_home_dir(folder.name)


def _arranged(schema: Schema, items: list[Any]) -> list[Any]:
    """Return as many items as all given values have, if these have the same number, with the properties of
    these."""
    if schema.fixed and items and "distinct" not in schema.properties:
        items = list(itertools.islice(itertools.cycle(items), schema.longest))
    return with_properties(schema.properties, items)


def _arranged_text(schema: Schema, text: Iterable[str]) -> str:
    """Return the text of these characters, with the length and the properties of given strings."""
    return "".join(_arranged(schema, list(text)))
