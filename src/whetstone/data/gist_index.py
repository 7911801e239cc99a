"""Benchmark statements that a reworded statement may come from, and their similarity."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from math import sqrt

from msgspec import Struct

from whetstone.data.similarity.gist import Rarity, cosine, letters, meaning, stems

# The statements that are compared in full.
_NEAREST = 4
_COVERED = 0.75
_LONGER = 1.5
_PLACES = 12
# Other wording moves the rarest word by a few places.
_SHIFTS = (-2, -1, 0, 1, 2)
# Comparing sequences takes quadratic time.
_LETTERS = 300


class Likeness(Struct, frozen=True):
    """The similarity in [0, 1] of a text, or a ``part`` of it, and the statement ``number``.

    ``bound`` is the similarity above which two texts of this length are not similar by chance.
    """

    number: int
    value: float
    bound: float
    part: bool

    @property
    def ratio(self) -> float:
        """At 1 and above, the texts are similar."""
        return self.value / self.bound


class _Entry(Struct, frozen=True):
    words: Sequence[str]
    stems: dict[str, float]
    letters: dict[str, float]
    content: float
    informative: str


class GistIndex:
    """Statements by their informative words. Count all texts before looking any up: counting changes the
    weights."""

    def __init__(self) -> None:
        self._words: list[Sequence[str]] = []
        self._stems, self._letters = Rarity(), Rarity()
        self._texts: set[int] = set()
        self._entries: list[_Entry] = []
        self._postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)

    def add(self, words: Sequence[str]) -> None:
        """Add a statement of a benchmark. Statements have numbers from 0, in the order of these calls."""
        self._words.append(words)
        self.count(words, of_set=False)

    def count(self, words: Sequence[str], *, of_set: bool = True) -> None:
        """Count the words of a text, once for all its copies."""
        key = hash((of_set, tuple(words)))
        if key not in self._texts:
            self._texts.add(key)
            # Weights depend on all counted texts, so they are computed again at the next look-up.
            self._entries.clear()
            self._stems.add(stems(words), of_set=of_set)
            self._letters.add(letters(words), of_set=of_set)

    def near(self, words: Sequence[str]) -> dict[int, Likeness]:
        """Return the statements that may be this text or a part of it, by number.

        Three measures are compared with their bounds, and the best one counts. They are the cosine of
        informative words with synonyms as one; the mean of it and the cosine of runs of characters; and the
        share of letters in the same order in the informative words (Ratcliff and Obershelp 1988), which
        tolerates typing errors. With these bounds, HumanEval and MBPP, which have different problems, are not
        similar. Of a far longer text, the most similar part counts.
        """
        self._weigh()
        mine = self._entry(words)
        dots: defaultdict[int, float] = defaultdict(float)
        covered: defaultdict[int, float] = defaultdict(float)
        for key, weight in mine.stems.items():
            for number, theirs in self._postings.get(key, ()):
                dots[number] += weight * theirs
                covered[number] += theirs * theirs
        found = {
            number: self._likeness(mine, number)
            for number in heapq.nlargest(_NEAREST, dots, key=lambda n: (dots[n], -n))
        }
        for number in heapq.nlargest(_NEAREST, covered, key=lambda n: (covered[n], -n)):
            if covered[number] >= _COVERED and len(words) > _LONGER * len(self._words[number]):
                part = self._part(words, number)
                if number not in found or part.ratio > found[number].ratio:
                    found[number] = part
        return found

    def likeness(self, words: Sequence[str], number: int) -> Likeness:
        """Return the similarity of a text and the statement of that number."""
        self._weigh()
        return self._likeness(self._entry(words), number)

    def _likeness(self, mine: _Entry, number: int, *, part: bool = False) -> Likeness:
        theirs = self._entries[number]
        words, runs = cosine(mine.stems, theirs.stems), cosine(mine.letters, theirs.letters)
        root_content = sqrt(max(min(mine.content, theirs.content), 1.0))
        both = Likeness(number, (words + runs) / 2, 0.5 + (1.3 if part else 1.0) / root_content, part)
        if part:
            return both
        alone = Likeness(number, words, 0.72 + 0.9 / root_content, part)
        least = 0.57 + 0.9 / root_content
        order = Likeness(number, _same_order(mine.informative, theirs.informative, least), least, part)
        return max(both, alone, order, key=lambda found: found.ratio)

    def _part(self, words: Sequence[str], number: int) -> Likeness:
        """Return the similarity of the most similar part of a longer text, aligned by the rarest word."""
        theirs = self._entries[number]
        rarest = max(theirs.stems, key=lambda stem: (theirs.stems[stem], stem))
        start = next(at for at, word in enumerate(theirs.words) if meaning(word) == rarest)
        places = [at for at, word in enumerate(words) if meaning(word) == rarest][:_PLACES]
        starts = {max(at - start + shift, 0) for at in places for shift in _SHIFTS}
        parts = [self._entry(words[at : at + len(theirs.words)]) for at in sorted(starts)]
        return max((self._likeness(p, number, part=True) for p in parts), key=lambda found: found.value)

    def _entry(self, words: Sequence[str]) -> _Entry:
        counts = stems(words)
        weights = self._stems.weights(counts), self._letters.weights(letters(words))
        informative = " ".join(word for word in words if meaning(word))[:_LETTERS]
        return _Entry(words, *weights, self._stems.content(counts), informative)

    def _weigh(self) -> None:
        if self._entries:
            return
        self._postings.clear()
        for number, words in enumerate(self._words):
            self._entries.append(self._entry(words))
            for key, weight in self._entries[-1].stems.items():
                self._postings[key].append((number, weight))


def _same_order(a: str, b: str, least: float) -> float:
    """Return the share of letters of both in the same order; 0 if it is certainly below ``least``."""
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    # Both are upper bounds of `ratio`, and much cheaper.
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    return matcher.ratio()
