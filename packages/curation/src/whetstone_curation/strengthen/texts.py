"""New strings: boundary values, and strategies that draw letters and words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from whetstone_curation.strengthen.schema import Schema

_FEW_LETTERS = 5
_MOST_WORDS = 8
# Equal letters or items before another one: more than most programs that stop early compare.
BEFORE_OTHER = 12

Strategy = st.SearchStrategy[Any]


def string_edges(schema: Schema, letters: str, seen: Sequence[str]) -> list[str]:
    """Return boundary values: no, one and equal letters, palindromes, changes of the longest given string,
    and the schema's words."""
    text = max(seen, key=len, default="")
    plain = "".join(filter(str.isalnum, letters)) or letters  # "-" alone is rarely an input
    made = ["", plain[0], plain[-1], plain[0] * 4, text[::-1], text + text, text[1:], text[:-1]]
    made += [text + text[::-1], letters if len(letters) <= 40 else letters[:40]]
    made += [plain[0] * BEFORE_OTHER + plain[-1], *_almost_palindromes(plain)]
    made += [text.upper(), text.lower(), text.swapcase(), f" {text} ", f"{text}  {text}"]
    made += [form for word in schema.words for form in (word + text, text + word)]
    words = _whole_words(schema)
    made += [*words, _between(schema).join(words[::-1])]
    if schema.fixed:
        return [value for value in made if len(value) == len(text)]
    return [value for value in made if set(value) <= set(letters) or not value]


def _almost_palindromes(letters: str) -> list[str]:
    """Return a long palindrome, and one whose middle letters differ."""
    half = "".join(itertools.islice(itertools.cycle(letters), BEFORE_OTHER))
    return [half + half[::-1], half + letters[0] + letters[-1] + half[::-1]]


def joined_words(schema: Schema) -> Strategy:
    """Return a strategy for texts of the schema's words."""
    words = _whole_words(schema)
    texts = st.lists(st.sampled_from(words), max_size=_MOST_WORDS) if words else st.nothing()
    return texts.map(_between(schema).join)


def _whole_words(schema: Schema) -> list[str]:
    return [word for word in schema.words if word.isalnum()]


def _between(schema: Schema) -> str:
    """Return what is between words: a blank, if given strings have any."""
    return " " if " " in schema.letters else ""


def rich_text(letters: str, shortest: int, longest: int) -> Strategy:
    """Return a strategy for strings of all letters, or of a few that are repeated."""
    few = st.lists(st.sampled_from(letters), min_size=2, max_size=_FEW_LETTERS)
    repeated = few.flatmap(lambda pool: st.text(pool, min_size=shortest, max_size=longest))
    return repeated | st.text(letters, min_size=shortest, max_size=longest)
