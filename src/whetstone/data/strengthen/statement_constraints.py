"""What a statement says about its inputs: ranges by name, signs, emptiness, letters.

Heuristics on English text and on the bounds that contest sites print (``1 <= n <= 10^5``). A range is
believed only where the inputs that are there lie in it (see ``shapes``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

_POWER = r"\s*(?:\^|\*\*)\s*\{?\d+\}?"
_NUMBER = rf"[-\u2212]?\d[\d,_]*(?:\s*(?:\*|\u00d7|\\times|\\cdot)\s*10{_POWER}|{_POWER})?"
_LESS = r"(?:<=|\u2264|\u2a7d|\\leq?(?:slant)?|<)"
_NAME = r"[A-Za-z]\w*(?:\s*\[[^\]]{1,12}\]|_\{?[A-Za-z0-9,]{1,5}\}?)*|len\(\w+\)|\|\w+\|"
_RANGE = re.compile(
    rf"({_NUMBER})\s*({_LESS})\s*((?:{_NAME})(?:\s*,\s*(?:{_NAME})){{0,5}})\s*({_LESS})\s*({_NUMBER})"
)
_LENGTH = re.compile(r"(?:len\((\w+)\)|\|(\w+)\||(\w+)\.length)")
_BASE = re.compile(r"[A-Za-z]\w*?(?=_|\s*\[|$|\d*$)")
_FAR = 1 << 62
_DISTINCT = (
    r"\b(?:list|array|sequence|set|n|k|m)\s+(?:of\s+)?(?:pairwise\s+)?(?:distinct|unique|different)\b"
    r"|\b(?:elements|integers|numbers|values|items|letters|names)\s+(?:are|will\s+be)\s+(?:all\s+|pairwise\s+)?"
    r"(?:distinct|unique|different)\b|\bpairwise\s+(?:distinct|different)\b|\bno\s+(?:duplicates|repeated)"
    r"|\bpermutation\s+of\b|\bwithout\s+(?:duplicates|repetition)"
)


class Range(Struct, frozen=True):
    """Bounds of a name, both included. ``of``: the value, the items of a list, or a length."""

    name: str
    of: str
    low: int
    high: int


class StatementConstraints(Struct, frozen=True):
    """What a statement says; all false where it says nothing.

    positive, non_negative: no number is below 1, or 0. negative: that there may be negative ones; zero: 0.
    empty: that something may be empty; never_empty: that nothing is. lower, upper: letters of one case alone;
    distinct: that items differ; ordered: that they come sorted.
    """

    ranges: tuple[Range, ...] = ()
    positive: bool = False
    non_negative: bool = False
    negative: bool = False
    zero: bool = False
    empty: bool = False
    never_empty: bool = False
    lower: bool = False
    upper: bool = False
    any_letters: bool = False
    distinct: bool = False
    ordered: bool = False

    def wider(self) -> StatementConstraints:
        """As if the statement allowed all that it does not rule out."""
        return msgspec.structs.replace(
            self,
            negative=not self.positive and not self.non_negative,
            zero=not self.positive,
            empty=not self.never_empty,
            any_letters=not self.lower and not self.upper,
        )

    def range_of(self, name: str, of: str) -> Range | None:
        """The bounds that are said of a name."""
        return next((known for known in self.ranges if known.name == name and known.of == of), None)


def said_in(statement: str) -> StatementConstraints:
    """What the statement says about its inputs."""
    text = statement.replace("$", " ")

    def has(pattern: str) -> bool:
        return re.search(pattern, text, re.IGNORECASE) is not None

    return StatementConstraints(
        ranges=tuple(_ranges(text)),
        positive=has(
            r"\b(?:positive|natural)\s+(?:\w+\s+)?(?:numbers?|integers?|ints?|values?)\b|\bpositive\b"
        ),
        non_negative=has(r"\bnon-?\s?negative\b"),
        negative=has(r"(?<!non-)(?<!non )\bnegatives?\b"),
        zero=has(r"\bzeros?\b|\bnon-?\s?negative\b|\b0\b"),
        empty=has(r"(?<!non-)(?<!non )\bempty\b|\[\]|\"\"|''"),
        never_empty=has(
            r"\bnon-?\s?empty\b|\bat least (?:one|two|1|2|\d+) (?:element|item|character|number)"
        ),
        lower=has(r"\blower-?\s?case\b"),
        upper=has(r"\bupper-?\s?case\b|\bcapital"),
        any_letters=has(
            r"\bcase[- ](?:in)?sensitive|\b(?:upper|lower)-?\s?case\b.{0,80}\b(?:upper|lower)-?\s?case\b"
        ),
        distinct=has(_DISTINCT),
        ordered=has(r"\b(?:sorted|ascending|non-?decreasing|increasing) (?:list|array|sequence|order)\b"),
    )


def _ranges(text: str) -> Iterator[Range]:
    for found in _RANGE.finditer(text):
        low, high = _value(found[1]), _value(found[5])
        if low is None or high is None:
            continue
        low += found[2] == "<"
        high -= found[4] == "<"
        if low <= high:
            for name in re.split(r"\s*,\s*(?![^\[\]{}]*[\]}])", found[3]):
                yield Range(*_named(name), low, high)


def _named(text: str) -> tuple[str, str]:
    """The name, and what of it is bounded."""
    if length := _LENGTH.fullmatch(text.strip()):
        return next(group for group in length.groups() if group), "length"
    base = _BASE.match(text.strip())
    of = "items" if "_" in text or "[" in text else "value"
    return (base[0] if base else text.strip()), of


def _value(text: str) -> int | None:
    """``10^5``, ``2 * 10^5``, ``1,000``."""
    plain = re.sub(r"[\s,_{}]", "", text).replace("\u2212", "-").replace("**", "^")
    plain = re.sub(r"\\times|\\cdot|\u00d7", "*", plain)
    total = 1
    for factor in plain.split("*"):
        base, _, power = factor.partition("^")
        try:
            if power and int(power) > 100:
                return None
            total *= int(base) ** int(power or 1)
        except ValueError:
            return None
    return total if abs(total) <= _FAR else None
