"""The layout of inputs as text (``stdin``): reading them as values, and writing values as text.

The layout is inferred from the given inputs: lines of tokens, lists after their length, rows after their
number, test cases after their number. It is believed if every given input, read and written again, has the
same tokens in the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

_INT = re.compile(r"[+-]?(?:0|[1-9]\d{0,30})")
_FLOAT = re.compile(r"[+-]?\d{1,15}\.\d{1,12}")
_Line = list[str]


class LayoutPart(Struct, frozen=True):
    """A part of the layout, by its kind.

    scalar: a line of ``width`` tokens, each a value. items: a line that is one list. text: a line as it is.
    rows: all further lines as one list, of ``width`` tokens each (0: any number, the same in all). blocks:
    test cases of ``width`` lines, each read by ``inner``.
    """

    kind: str
    width: int = 0
    inner: InputLayout | None = None


class Count(Struct, frozen=True):
    """The scalar number ``scalar`` is the length of value ``value``, or of its first row (``across``)."""

    scalar: int
    value: int
    across: bool = False


class InputLayout(Struct, frozen=True):
    """The parts in order, and the scalars that are counts. Values do not contain the counts."""

    parts: tuple[LayoutPart, ...]
    counts: tuple[Count, ...]

    def read(self, text: str) -> list[Any]:
        """Return the values of an input without its counts. Raises ValueError if it does not fit."""
        values = _read(self.parts, _lines(text))
        counted = {count.scalar for count in self.counts}
        return [value for at, value in enumerate(values) if at not in counted]

    def write(self, values: Sequence[Any]) -> str:
        """Return the input of these values. Raises ValueError for values that it cannot contain."""
        counted = {count.scalar: count for count in self.counts}
        left = iter(values)
        every: list[Any] = [None if at in counted else next(left) for at in range(len(values) + len(counted))]
        for at, count in counted.items():
            every[at] = _length(every[count.value], across=count.across)
        lines = _written(self.parts, iter(every))
        return "\n".join(lines) + "\n"


def layout_of(texts: Sequence[str]) -> InputLayout | None:
    """Return the layout that all inputs have; None if none is found."""
    documents = [_lines(text) for text in texts]
    if not documents or not all(documents):
        return None
    for find in (_blocks, _parts):
        try:
            parts = find(documents)
            if parts is None:
                continue
            layout = InputLayout(parts, _counts([_read(parts, lines) for lines in documents]))
            if all(_same(layout.write(layout.read(text)), text) for text in texts):
                return layout
        except (ValueError, StopIteration, RuntimeError):
            continue
    return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")] if text.strip() else []


def _same(one: str, other: str) -> bool:
    return [line.split() for line in _lines(one)] == [line.split() for line in _lines(other)]


def _value(token: str) -> int | float | str:
    if _INT.fullmatch(token) and token[0] != "+":
        return int(token) if token != "-0" else token
    if _FLOAT.fullmatch(token) and repr(float(token)) == token:
        return float(token)
    return token


def _blocks(documents: list[list[str]]) -> tuple[LayoutPart, ...] | None:
    """Return parts for test cases with their number in the first line."""
    heads = [_value(lines[0]) for lines in documents]
    if not all(isinstance(head, int) and head > 0 for head in heads):
        return None
    sizes = {(len(lines) - 1) / cast("int", head) for lines, head in zip(documents, heads, strict=True)}
    size = sizes.pop()
    if sizes or size != int(size) or size < 1 or len(set(heads)) + (max(cast("list[int]", heads)) > 1) < 2:
        return None
    blocks = [lines[at : at + int(size)] for lines in documents for at in range(1, len(lines), int(size))]
    parts = _parts(blocks) if size > 1 else None
    if parts is None:
        return None
    inner = InputLayout(parts, _counts([_read(parts, block) for block in blocks]))
    return LayoutPart("scalar", 1), LayoutPart("blocks", int(size), inner)


def _parts(documents: list[list[str]]) -> tuple[LayoutPart, ...] | None:
    """Return a part for each line that all inputs have, and one for the rows after these."""
    parts: list[LayoutPart] = []
    scalars: list[list[int]] = [[] for _ in documents]
    at = 0
    while any(at < len(lines) for lines in documents):
        left = [len(lines) - at for lines in documents]
        if at and _counted(scalars, left) and _even_rows(documents, at):
            widths = {len(line.split()) for lines in documents for line in lines[at:]}
            return (*parts, LayoutPart("rows", widths.pop() if len(widths) == 1 else 0))
        if min(left) < 1:
            return None
        here = [lines[at].split() for lines in documents]
        widths = {len(tokens) for tokens in here}
        counted = any(
            values and max(values) != min(values) for values in [[len(tokens) for tokens in here]]
        ) or (at > 0 and _counted(scalars, [len(tokens) for tokens in here]) and max(widths) > 1)
        kinds = {type(_value(token)) for tokens in here for token in tokens}
        if counted and all(here) and (kinds <= {int, float} or _counted(scalars, [len(t) for t in here])):
            parts.append(LayoutPart("items"))
        elif len(widths) == 1 and all(here):
            parts.append(LayoutPart("scalar", widths.pop()))
            for found, tokens in zip(scalars, here, strict=True):
                found += [value if isinstance(value := _value(token), int) else -1 for token in tokens]
        else:
            parts.append(LayoutPart("text"))
        at += 1
    return tuple(parts)


def _counted(scalars: list[list[int]], sizes: list[int]) -> bool:
    """Return whether a scalar is the size in every input, and not by chance."""
    for column in zip(*scalars, strict=True):
        if list(column) == sizes and (len(set(sizes)) > 1 or sizes[0] > 2):
            return True
    return False


def _even_rows(documents: list[list[str]], at: int) -> bool:
    """Return whether the further lines of each input have the same number of tokens."""
    widths = [{len(line.split()) for line in lines[at:]} for lines in documents]
    return all(len(found) == 1 and 0 not in found for found in widths)


def _counts(documents: list[list[Any]]) -> tuple[Count, ...]:
    """Return the scalars that are the length of a value in all inputs."""
    found: list[Count] = []
    if len({len(values) for values in documents}) != 1:
        raise ValueError("not the same values")
    for value in range(len(documents[0])):
        for across in (False, True):
            lengths = [_length(values[value], across=across) for values in documents]
            if None in lengths or (len(set(lengths)) == 1 and cast("int", lengths[0]) < 3):
                continue
            for scalar in range(value):
                column = [values[scalar] for values in documents]
                if column == lengths and all(type(n) is int for n in column):
                    if all(known.scalar != scalar for known in found):
                        found.append(Count(scalar, value, across))
                    break
    return tuple(found)


def _length(value: Any, *, across: bool) -> int | None:
    if across:
        value = cast("Any", value[0]) if isinstance(value, list) and value else None
    if isinstance(value, list | tuple):
        return len(cast("list[Any]", value))
    return len(value) if isinstance(value, str) else None


def _read(parts: tuple[LayoutPart, ...], lines: list[str]) -> list[Any]:
    values: list[Any] = []
    at = 0
    for part in parts:
        if part.kind == "rows":
            rows = [list(map(_value, line.split())) for line in lines[at:]]
            if part.width == 1:
                values.append([row[0] for row in rows])
            else:
                values.append([tuple(row) for row in rows] if part.width else rows)
            at = len(lines)
        elif part.kind == "blocks":
            blocks = [lines[start : start + part.width] for start in range(at, len(lines), part.width)]
            assert part.inner is not None
            values.append([tuple(part.inner.read("\n".join(block))) for block in blocks])
            at = len(lines)
        else:
            if at >= len(lines):
                raise ValueError("too few lines")
            if part.kind == "scalar":
                values += map(_value, lines[at].split())
            else:
                values.append(list(map(_value, lines[at].split())) if part.kind == "items" else lines[at])
            at += 1
    if at != len(lines):
        raise ValueError("too many lines")
    return values


def _written(parts: tuple[LayoutPart, ...], values: Any) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if part.kind == "scalar":
            lines.append(" ".join(_token(next(values)) for _ in range(part.width)))
        elif part.kind == "items":
            lines.append(" ".join(map(_token, next(values))))
        elif part.kind == "text":
            lines.append(str(next(values)))
        elif part.kind == "rows":
            for row in next(values):
                many = isinstance(row, list | tuple)
                lines.append(" ".join(map(_token, cast("list[Any]", row))) if many else _token(row))
        else:
            for block in next(values):
                assert part.inner is not None
                lines += part.inner.write(block).split("\n")[:-1]
    return lines


def _token(value: Any) -> str:
    text = str(value)
    if not text or text.split() != [text]:
        raise ValueError("not a token")
    return text
