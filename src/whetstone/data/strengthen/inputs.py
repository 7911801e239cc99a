"""New inputs for a problem: lists of arguments like those that are there, those at the edges first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from whetstone.data.strengthen.drawing import Draw
from whetstone.data.strengthen.input_schema import Shape, shape_of, widened
from whetstone.data.strengthen.relations import kept, mended, relations
from whetstone.data.strengthen.statement_constraints import StatementConstraints
from whetstone.data.strengthen.values import Values

# Characters of an input as text; a longer one is for what is too slow, see `large`.
_LONGEST_TEXT = 3_000
_TRIES = 6
_OFTEN_VARIED = 3


class Inputs:
    """Makes inputs from ``seeds``: one at least, all with the same number of arguments."""

    def __init__(
        self,
        seeds: Sequence[Sequence[Any]],
        said: StatementConstraints,
        names: Sequence[str],
        draw: Draw,
        *,
        wide: bool = False,
    ) -> None:
        self._seeds = [list(seed) for seed in seeds]
        self._draw = draw
        self._relations = relations(seeds)
        width = len(self._seeds[0])
        named = [*names, *[""] * width]
        self._shapes: list[Shape] = [
            shape_of([seed[at] for seed in self._seeds], said, named[at]) for at in range(width)
        ]
        if wide:
            self._shapes = [widened(shape) for shape in self._shapes]
        self._values = Values(draw, said)
        self._large = Values(draw, said, 20_000)

    def candidates(self, count: int) -> list[list[Any]]:
        """Up to ``count`` different inputs, none of which is a seed: edges first, then varied and drawn."""
        found = {_text(seed): seed for seed in self._seeds}
        given = len(found)
        for made in self._each(count * _TRIES):
            made = mended(self._relations, made)
            text = _text(made)
            if len(text) <= _LONGEST_TEXT and text not in found and kept(self._relations, made):
                found[text] = made
            if len(found) - given >= count:
                break
        return list(found.values())[given:]

    def large(self, count: int) -> list[list[Any]]:
        """Inputs as large as the statement allows, where it bounds something: for programs that are slow."""
        found: list[list[Any]] = []
        for _ in range(count):
            made = [self._largest(shape, shape.seen[0]) for shape in self._shapes]
            made = mended(self._relations, made)
            if kept(self._relations, made) and _text(made) not in {_text(seed) for seed in self._seeds}:
                found.append(made)
        return found

    def _largest(self, shape: Shape, usual: Any) -> Any:
        if shape.said is None:
            inner = shape.items is not None and shape.items.said is not None
            return self._values.fresh(shape) if inner else deepcopy(usual)
        high = shape.said.high
        if shape.kind in ("int", "float"):
            return high
        size = min(high, 20_000)
        if shape.kind == "str" and shape.letters:
            return "".join(self._draw.pick(shape.letters) for _ in range(size))
        if shape.kind == "list" and shape.items is not None:
            items = [self._values.fresh(shape.items) for _ in range(size)]
            return sorted(items, reverse=shape.ordered < 0) if shape.ordered else items
        return deepcopy(usual)

    def _each(self, most: int) -> Iterator[list[Any]]:
        yield from self._edges()
        pool = list(self._seeds)
        for number in range(most):
            kind = self._draw.below(10)
            if kind < 2:
                made = [self._values.fresh(shape) for shape in self._shapes]
            elif kind < 3 and len(self._shapes) > 1:
                made = [deepcopy(self._draw.pick(pool)[at]) for at in range(len(self._shapes))]
            else:
                made = self._varied(deepcopy(self._draw.pick(pool)))
            if number % _OFTEN_VARIED == 0:
                pool.append(made)
            yield made

    def _edges(self) -> Iterator[list[Any]]:
        for at, shape in enumerate(self._shapes):
            for value in self._values.edges(shape):
                made = deepcopy(self._draw.pick(self._seeds))
                yield [*made[:at], value, *made[at + 1 :]]
        if len(self._shapes) > 1:
            edges = [self._draw.shuffled(self._values.edges(shape) or shape.seen) for shape in self._shapes]
            for number in range(12):
                yield [deepcopy(values[number % len(values)]) for values in edges]

    def _varied(self, made: list[Any]) -> list[Any]:
        for _ in range(1 + self._draw.below(_OFTEN_VARIED)):
            if made:
                at = self._draw.below(len(made))
                made[at] = self._values.varied(self._shapes[at], made[at])
        return made


def _text(arguments: Sequence[Any]) -> str:
    return repr(list(arguments))
