"""The topic of a statement, independent of its wording: stems of informative words, synonyms, and letters.

Two copies of a task that were reworded share rare words, or words of one meaning, in any order. A word is
weighted by its rarity (inverse document frequency; Spärck Jones 1972), so that "write a function that
returns" has no weight. Runs of characters survive edits within words (Damashek 1995).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log, sqrt

from whetstone.data.similarity.words import plain_text, prose

# Characters in a run.
CHARACTERS = 4

_CODE_INTRODUCTION = re.compile(r"^[^\n]*:[ \t]*\n+(?=[ \t]*(?:assert\b|>>>|```))", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^[ \t]*(?:for )?examples?\b.{0,20}$|^[ \t]*for \w+ ?=.{0,100}$"
    r"|^(?=.{1,100}$).*(?:==|=>|➞|\w\(.*\) *(?:=|->|returns?\b|should\b)).*$",
    re.MULTILINE | re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+|\d+")
# This many texts without the word are added to the counted ones. With few texts, no word is then common.
_PRIOR = 100

# Synonyms in statements of programming problems; a comma ends a meaning.
_SYNONYMS = (
    "array list sequence collection series vector, string text phrase sentence, "
    "number integer int value numeral, "
    "return give output compute calculate determine produce yield print display report evaluate obtain, "
    "find get search locate seek, function method routine procedure program code script, "
    "check verify test whether decide, largest maximum max biggest greatest highest, "
    "smallest minimum min least lowest tiniest, remove delete eliminate drop discard strip erase, "
    "element item entry member component, count tally occurrence frequency times, "
    "sum total add addition, product multiply multiplication, difference subtract minus gap, "
    "reverse backward invert flip, sort order arrange ascending ordered sorted, unique distinct, "
    "duplicate repeat repeated recurring, common shared both mutual intersection, "
    "merge combine join concatenate unite, convert transform change turn translate, "
    "character letter symbol char, uppercase capital upper, lowercase lower, even divisible, "
    "equal same identical match equivalent, position index place location spot, "
    "substring fragment piece, length size, average mean, row line, "
    "dictionary map mapping dict hashmap, key label, tuple pair, begin start first initial leading, "
    "end last final trailing, empty blank, replace substitute swap exchange, contain include hold, "
    "greater larger exceed bigger above, smaller below under fewer, between range interval, "
    "split divide separate partition, whole entire all every each, "
    "consecutive adjacent neighbouring neighboring successive contiguous, square squared, "
    "vowel vowels, digit figure, word term, perimeter circumference border, "
    "create make build construct generate form, given provided supplied, input argument parameter, "
    "side edge, shift rotate rotation, odd uneven, triangle triangular, delimiter separator, "
    "bracket parenthesis paren, factor divisor, nested inner, binary base2, matrix grid table"
)

_STOP = (
    "a an the of to in on for from by with and or not is are be that this these those it its as at if then "
    "which who whose what when where than into your you we will would should can may must has have do does "
    "write python function give task implement using use following also any there such so code only else "
    "he she they their them his her one return true false example note nan none but was were"
)


def _stem(word: str) -> str:
    """Return the word without the usual English endings."""
    for ending, replacement in (
        ("ies", "y"),
        ("sses", "ss"),
        ("ings", ""),
        ("ing", ""),
        ("edly", ""),
        ("ed", ""),
        ("es", ""),
        ("s", ""),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


_MEANINGS = {_stem(word): _stem(group.split()[0]) for group in _SYNONYMS.split(",") for word in group.split()}
_UNINFORMATIVE = frozenset(_MEANINGS.get(_stem(word), _stem(word)) for word in _STOP.split())


def gist_words(text: str) -> list[str]:
    """Return the words and numbers of a statement's prose in order, without examples."""
    return _WORD.findall(plain_text(_EXAMPLE.sub("", prose(_CODE_INTRODUCTION.sub("", text)))))


def stems(words: Iterable[str]) -> Counter[str]:
    """Return the informative words, each as the stem of its meaning, with their counts."""
    return Counter(stem for word in words if (stem := meaning(word)))


@lru_cache(1 << 16)
def meaning(word: str) -> str:
    """Return the stem of the word's meaning; empty for an uninformative word."""
    stem = _stem(word)
    stem = _MEANINGS.get(stem, stem)
    return "" if stem in _UNINFORMATIVE or (len(stem) == 1 and not stem.isdigit()) else stem


def letters(words: Sequence[str]) -> Counter[str]:
    """Return the runs of characters with their counts, with one blank between words."""
    text = " ".join(words)
    return Counter(text[at : at + CHARACTERS] for at in range(max(len(text) - CHARACTERS + 1, 0)))


class Rarity:
    """The number of texts with a word or run, in the benchmarks and in the set. One of both is enough to be
    common."""

    def __init__(self) -> None:
        self._text_counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._texts = [0, 0]

    def add(self, keys: Iterable[str], *, of_set: bool) -> None:
        """Count the different keys of one more text."""
        self._text_counts[of_set].update(set(keys))
        self._texts[of_set] += 1

    def content(self, counts: Iterable[str]) -> float:
        """Return the information of the different keys together, in nats."""
        return sum(self._rarity(key) for key in counts)

    def weights(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Return the text as a vector of length 1, of (1 + log count) * log(texts / texts with the key)."""
        raw = {key: (1.0 + log(count)) * self._rarity(key) for key, count in counts.items()}
        norm = sqrt(sum(weight * weight for weight in raw.values()))
        return {key: weight / norm for key, weight in raw.items()} if norm else {}

    def _rarity(self, key: str) -> float:
        sides = zip(self._text_counts, self._texts, strict=True)
        return -log(max((spread[key] + 1) / (texts + 1 + _PRIOR) for spread, texts in sides))


def cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Return the cosine similarity of two vectors of length 1, in [0, 1]."""
    # Only keys of both count, so the shorter vector is enough.
    if len(a) > len(b):
        a, b = b, a
    return sum(weight * b[key] for key, weight in a.items() if key in b)
