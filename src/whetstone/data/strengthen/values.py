"""New values of a shape: at its edges, drawn anew, or made of one that is there by small changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from whetstone.data.strengthen.drawing import Draw
from whetstone.data.strengthen.input_schema import Shape, is_balanced, length_of
from whetstone.data.strengthen.statement_constraints import StatementConstraints

# Items of a new list: longer ones say little more about a program that is wrong.
_LONGEST = 40
_WORDS = re.compile(r"\s+|[,;:/]")
_RUN = re.compile(r"\d+")


class Values:
    """Makes values of shapes; the same for the same draws."""

    def __init__(self, draw: Draw, said: StatementConstraints, longest: int = _LONGEST) -> None:
        self._draw, self._said, self._longest = draw, said, longest

    def edges(self, shape: Shape) -> list[Any]:
        """Values at the ends of what a shape allows."""
        if shape.closed or shape.kind in ("mixed", "other"):
            return list(shape.seen)
        match shape.kind:
            case "bool":
                return [True, False]
            case "int" | "float":
                return self._number_edges(shape)
            case "str":
                return self._text_edges(shape)
            case "list" | "tuple" | "set":
                return [self._as(shape, items) for items in self._item_edges(shape)]
            case "dict":
                return [{}] if length_of(shape, self._said)[0] == 0 else []
            case _:
                return list(shape.seen)

    def fresh(self, shape: Shape) -> Any:
        """A value that owes nothing to one that is there."""
        if shape.closed or shape.kind in ("mixed", "other", "NoneType"):
            return self._draw.pick(shape.seen)
        match shape.kind:
            case "bool":
                return self._draw.chance(0.5)
            case "int" | "float":
                return self._number(shape)
            case "str":
                return self._text(shape)
            case "dict":
                return self._dict(shape)
            case _:
                return self._as(shape, self._items(shape))

    def varied(self, shape: Shape, value: Any) -> Any:
        """The value with a change, or another one in its place."""
        if shape.closed or shape.kind in ("mixed", "other", "NoneType", "bool") or self._draw.chance(0.1):
            return self.fresh(shape)
        match shape.kind:
            case "int" | "float":
                return self._near(shape, value)
            case "str":
                return self._changed_text(shape, value)
            case "dict":
                return self._changed_dict(shape, value)
            case _:
                return self._as(shape, self._changed_items(shape, list(value)))

    # Numbers.

    def _number_edges(self, shape: Shape) -> list[Any]:
        low, high = shape.low, shape.high
        found: list[float] = [low, low + 1, low + 2, high, high - 1, 0, 1, 2, 3, -1, -2]
        whole = [int(value) for value in found if low <= value <= high]
        if shape.kind == "int":
            return list(dict.fromkeys(whole))
        return [float(value) for value in dict.fromkeys(whole)] + [value + 0.5 for value in whole[:4]]

    def _number(self, shape: Shape) -> Any:
        low, high = int(shape.low), int(shape.high)
        if self._draw.chance(0.5):  # small numbers meet each other, and what a program compares them with
            low, high = max(low, -10), min(high, 12)
            if low > high:
                low, high = int(shape.low), int(shape.high)
        number = self._draw.between(low, high)
        if shape.kind == "int":
            return number
        return number + (
            round(self._draw.below(1000) / 1000, 1 + self._draw.below(3)) if shape.fractions else 0.0
        )

    def _near(self, shape: Shape, value: Any) -> Any:
        steps: list[Callable[[], Any]] = [
            lambda: value + 1,
            lambda: value - 1,
            lambda: -value,
            lambda: value * 2,
            lambda: value // 2,
            lambda: value + self._draw.between(-5, 5),
            lambda: self._number(shape),
        ]
        made = self._draw.pick(steps)()
        if not shape.low <= made <= shape.high:
            made = self._number(shape)
        return float(made) if shape.kind == "float" and isinstance(value, float) else made

    # Text.

    def _text_edges(self, shape: Shape) -> list[str]:
        low, _ = length_of(shape, self._said)
        if shape.template:
            return [self._renumbered(self._draw.pick(shape.seen)) for _ in range(6)]
        made = [""] if low == 0 else []
        if low <= 1:
            made += list(shape.letters[:8])
        for text in self._draw.shuffled([text for text in shape.seen if text])[:4]:
            made += [text[::-1], text * 2, text[: max(1, len(text) // 2)], text[0] * len(text)]
            made += self._recased(shape, text)
            if " " in shape.letters:
                made += [f" {text}", f"{text} ", text.replace(" ", "  ")]
        return [text for text in dict.fromkeys(made) if self._fits(shape, text)]

    def _recased(self, shape: Shape, text: str) -> Iterator[str]:
        if set(text.swapcase()) <= set(shape.letters):
            yield from (text.swapcase(), text.upper(), text.lower())

    def _text(self, shape: Shape) -> str:
        if shape.template:
            return self._renumbered(self._draw.pick(shape.seen))
        if shape.words:
            return " ".join(self._draw.pick(shape.words) for _ in range(1 + self._draw.below(8)))
        if shape.balanced:
            return self._bracketed(shape, self._draw.pick(shape.seen))
        low, high = length_of(shape, self._said)
        low = min(low, self._longest)
        size = self._draw.between(low, max(low, min(high, self._longest)))
        few = (
            self._draw.shuffled(shape.letters)[: 2 + self._draw.below(4)]
            if self._draw.chance(0.5)
            else shape.letters
        )
        return "".join(self._draw.pick(few) for _ in range(size)) if few else ""

    def _changed_text(self, shape: Shape, text: str) -> str:
        if shape.template:
            return self._renumbered(text)
        words = [word for word in _WORDS.split(text) if word]
        steps: list[Callable[[], str]] = [
            lambda: self._letter_changed(shape, text),
            lambda: self._letter_changed(shape, text),
            lambda: text + self._draw.pick(shape.seen),
            lambda: (
                text[: self._draw.below(len(text) + 1)] + self._draw.pick(shape.seen)[self._draw.below(3) :]
            ),
            lambda: text[::-1],
            lambda: "".join(self._draw.shuffled(text)),
            lambda: text + text[::-1],
            lambda: self._text(shape),
        ]
        if shape.balanced:
            steps += [lambda: self._bracketed(shape, text)] * 6
        if _RUN.search(text):
            steps += [lambda: self._renumbered(text)] * 6
        if len(words) > 1:
            steps += [lambda: " ".join(self._draw.shuffled(words)), lambda: " ".join(words[1:])] * 2
            steps += [
                lambda: " ".join([*words, self._draw.pick(words)]),
                lambda: words[self._draw.below(len(words))],
            ]
        for _ in range(4):
            made = self._draw.pick(steps)()
            if self._fits(shape, made):
                return made
        return text

    def _bracketed(self, shape: Shape, text: str) -> str:
        """More, fewer or deeper brackets."""
        pairs = [pair for pair in ("()", "[]", "{}", "<>") if set(pair) <= set(shape.letters)]
        left, right = self._draw.pick(pairs or ["()"])
        match self._draw.below(4):
            case 0:
                return left + text + right
            case 1:
                return text + left + right
            case 2:
                return text + self._draw.pick(shape.seen)
            case _:
                return text.replace(left + right, "", 1) or left + right

    def _renumbered(self, text: str) -> str:
        """Some of the numbers in it changed, as wide as they were."""

        def other(found: re.Match[str]) -> str:
            width = len(found[0])
            if self._draw.chance(0.4):
                return found[0]
            number = str(self._draw.below(10 ** min(width, 1 + self._draw.below(width))))
            return number.zfill(width) if found[0][0] == "0" and width > 1 else number

        same_width = len(set(map(len, _RUN.findall(text)))) <= 2 and re.fullmatch(r"[\d\W]+", text)
        made = _RUN.sub(other, text)
        return text if same_width and len(made) != len(text) else made

    def _letter_changed(self, shape: Shape, text: str) -> str:
        at = self._draw.below(len(text) + 1)
        letter = self._draw.pick(shape.letters) if shape.letters else ""
        match self._draw.below(4):
            case 0:
                return text[:at] + letter + text[at:]
            case 1:
                return text[:at] + text[at + 1 :]
            case 2:
                return text[:at] + (text[at : at + 1] * 2) + text[at + 1 :]
            case _:
                return text[:at] + letter + text[at + 1 :]

    def _fits(self, shape: Shape, text: str) -> bool:
        low, high = length_of(shape, self._said)
        if shape.tidy and ("  " in text or text != text.strip()):
            return False
        if (shape.balanced and not is_balanced(text)) or (
            shape.words and not set(text.split()) <= set(shape.words)
        ):
            return False
        longest = high if low == high else max(high, self._longest)
        return low <= len(text) <= longest and set(text) <= set(shape.letters)

    # Containers.

    def _item_edges(self, shape: Shape) -> list[list[Any]]:
        low, high = length_of(shape, self._said)
        if shape.items is None:
            return [[]] if low == 0 else []
        made: list[list[Any]] = [[]] if low == 0 else []
        if shape.places:
            for at, place in enumerate(shape.places):
                base = [self.fresh(other) for other in shape.places]
                made += [[*base[:at], value, *base[at + 1 :]] for value in self.edges(place)[:6]]
            return made
        edges = self.edges(shape.items)[:6]
        if low <= 1 <= high:
            made += [[value] for value in edges]
        for value in edges[:4]:
            made.append([value] * max(low, min(3, high)))
        if edges:
            made.append([self._draw.pick(edges) for _ in range(min(high, 5))])
        for value in self._draw.shuffled(shape.seen)[:3]:
            items = list(value)
            made += [items[::-1], items * 2, sorted(items, key=_key), sorted(items, key=_key, reverse=True)]
        return [items for items in made if low <= len(items) <= max(high, self._longest)]

    def _items(self, shape: Shape) -> list[Any]:
        if shape.places:
            return [self.fresh(place) for place in shape.places]
        low, high = length_of(shape, self._said)
        if shape.items is None:
            return []
        size = self._draw.between(min(low, self._longest), max(low, min(high, self._longest)))
        item = shape.items
        pool = [self.fresh(item) for _ in range(1 + self._draw.below(3))] if self._draw.chance(0.3) else []
        return [self._draw.pick(pool) if pool else self.fresh(item) for _ in range(size)]

    def _changed_items(self, shape: Shape, items: list[Any]) -> list[Any]:
        if shape.places:
            at = self._draw.below(len(items))
            return [*items[:at], self.varied(shape.places[at], items[at]), *items[at + 1 :]]
        low, high = length_of(shape, self._said)
        item = shape.items
        if item is None:
            return items
        at = self._draw.below(len(items))
        match self._draw.below(8):
            case 0 | 1 if items:
                items[at] = self.varied(item, items[at])
            case 2:
                items.insert(self._draw.below(len(items) + 1), self.fresh(item))
            case 3 if len(items) > low:
                del items[at]
            case 4 if items:
                items.insert(self._draw.below(len(items) + 1), items[at])  # an item twice
            case 5:
                items = self._draw.shuffled(items)
            case 6 if items:
                items = items[: max(low, at)] if self._draw.chance(0.5) else items[::-1]
            case _:
                items = [self.varied(item, value) for value in items]
        return items[: max(high, self._longest)]

    def _as(self, shape: Shape, items: list[Any]) -> Any:
        """The items as the container of a shape, and as it wants them."""
        if shape.distinct:
            items = list({repr(item): item for item in items}.values())
        if shape.even and items:
            items = self._even(items)
        if shape.ordered:
            items = sorted(items, key=_key, reverse=shape.ordered < 0)
        if shape.kind == "tuple":
            return tuple(items)
        if shape.kind == "set":
            try:
                return set(items)
            except TypeError:
                return set(shape.seen[0])
        return items

    def _even(self, rows: list[Any]) -> list[Any]:
        width = len(self._draw.pick(rows))
        filler = next((row for row in rows if len(row)), None)
        if filler is None or not width:
            return rows
        return [(row + filler * width)[:width] if len(row) < width else row[:width] for row in rows]

    def _dict(self, shape: Shape) -> dict[Any, Any]:
        if shape.keys is None or shape.items is None:
            return dict(shape.seen[0])
        low, high = length_of(shape, self._said)
        size = self._draw.between(low, max(low, min(high, 8)))
        keys = [self._draw.pick(shape.keys.seen) if self._draw.chance(0.5) else self.fresh(shape.keys)
                for _ in range(size)]  # fmt: skip
        return {key: self.fresh(shape.items) for key in keys}

    def _changed_dict(self, shape: Shape, value: dict[Any, Any]) -> dict[Any, Any]:
        made = dict(value)
        if shape.keys is None or shape.items is None or not made:
            return self._dict(shape)
        key = self._draw.pick(list(made))
        if self._draw.chance(0.3) and len(made) > length_of(shape, self._said)[0]:
            del made[key]
        elif self._draw.chance(0.3):
            made[self.fresh(shape.keys)] = self.fresh(shape.items)
        else:
            made[key] = self.varied(shape.items, made[key])
        return made


def _key(value: Any) -> tuple[int, Any]:
    """An order of values of several types."""
    if isinstance(value, bool | int | float):
        return 0, value
    return 1, value if isinstance(value, str) else repr(cast("object", value))
