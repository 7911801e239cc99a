"""What benchmarks hold: where each of their statements, runs of words, test cases and solutions occurs."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from whetstone.data.similarity.cases import CaseSet, read_tests
from whetstone.data.similarity.programs import read_program
from whetstone.data.similarity.words import prose, read_words, shingles, task_text
from whetstone.errors import UserError
from whetstone.problem import Problem

COMMON = 5
"""A run of words in so many different statements of the benchmarks belongs to none of them."""

MIN_NODES = 40
"""Syntax nodes of a solution that is not written twice by chance."""

MIN_WORDS = 6
"""Words of a statement that is not written twice by chance."""

_RARE = 50


class Item(Struct, frozen=True):
    """A problem reduced to what is compared; ``shingles`` and ``runs`` are of its prose."""

    benchmark: str
    id: str
    statement: int | None
    text: int
    tests: CaseSet
    shingles: frozenset[int]
    runs: frozenset[int]
    solutions: tuple[int, ...]


def read_item(problem: Problem, ngram: int, benchmark: str = "") -> Item:
    """Reduce a problem, of a benchmark or of a set, to runs of ``ngram`` words and the rest."""
    text = task_text(problem.statement, problem.starter)
    whole, words = read_words(text), read_words(prose(text))
    return Item(
        benchmark=benchmark,
        id=problem.id,
        statement=whole.exact if len(whole.tokens) >= MIN_WORDS else None,
        text=words.exact,
        tests=read_tests(problem),
        shingles=frozenset(shingles(words.tokens)),
        runs=frozenset(shingles(words.tokens, ngram)),
        solutions=tuple(_solutions(problem)),
    )


def read_runs(problem: Problem, ngram: int) -> tuple[int, set[int]]:
    """A hash of a problem's prose, and its runs of ``ngram`` words: of ``read_item`` just these."""
    words = read_words(prose(task_text(problem.statement, problem.starter)))
    return words.exact, shingles(words.tokens, ngram)


class BenchmarkIndex:
    """The problems of the benchmarks, found by anything that another problem may share with them."""

    def __init__(self, ngram: int) -> None:
        self.ngram = ngram
        self.sizes: Counter[str] = Counter()
        self.statements: dict[int, Item] = {}
        self.fingerprints: dict[int, Item] = {}
        self.solutions: dict[int, Item] = {}
        self._items: list[Item] = []
        self._cases: dict[int, array[int]] = {}
        self._shingles: dict[int, array[int]] = {}
        self._runs: dict[int, array[int]] = {}
        self._texts: set[int] = set()
        self._spread: Counter[int] = Counter()

    def add(self, benchmark: str, problems: Iterable[Problem]) -> None:
        """Take in a benchmark. Raises UserError for one without problems."""
        for problem in problems:
            self.sizes[benchmark] += 1
            self._add(read_item(problem, self.ngram, benchmark))
        if not self.sizes[benchmark]:
            raise UserError(f"--against {benchmark}: holds no problems")

    def _add(self, item: Item) -> None:
        number = len(self._items)
        self._items.append(item)
        if item.statement is not None:
            self.statements.setdefault(item.statement, item)
        if item.tests.fingerprint is not None:
            self.fingerprints.setdefault(item.tests.fingerprint, item)
        for solution in item.solutions:
            self.solutions.setdefault(solution, item)
        for keys, index in (
            (set(item.tests.wholes), self._cases),
            (item.shingles, self._shingles),
            (item.runs, self._runs),
        ):
            for key in keys:
                index.setdefault(key, array("I")).append(number)
        # Two benchmarks with one text (HumanEval and HumanEval+) do not make it common.
        if item.text not in self._texts:
            self._texts.add(item.text)
            self._spread.update(item.runs)

    def is_common(self, run: int) -> bool:
        """Whether a run of words is in so many statements that it says nothing."""
        return self._spread[run] >= COMMON

    def has_run(self, run: int) -> bool:
        """Whether a run of words is in any statement."""
        return run in self._runs

    def by_cases(self, wholes: Iterable[int]) -> Iterator[tuple[Item, int]]:
        """Problems with some of these test cases, and with how many; the most first."""
        return self._counted(self._cases, wholes, len(self._items))

    def by_runs(self, runs: Iterable[int]) -> Iterator[tuple[Item, int]]:
        """Problems with some of these runs of words, and with how many; the most first."""
        return self._counted(self._runs, runs, len(self._items))

    def by_shingles(self, found: Iterable[int]) -> Iterator[tuple[Item, int]]:
        """Problems that share shingles that few have, and how many of these; the most first."""
        return self._counted(self._shingles, found, _RARE)

    def _counted(
        self, index: dict[int, array[int]], keys: Iterable[int], rare: int
    ) -> Iterator[tuple[Item, int]]:
        counts: Counter[int] = Counter()
        for key in keys:
            places = index.get(key)
            if places is not None and len(places) <= rare:
                counts.update(places)
        return ((self._items[number], count) for number, count in counts.most_common(3))


def _solutions(problem: Problem) -> Iterator[int]:
    for program in problem.references:
        if program.language.startswith(("python", "pypy")):
            found = read_program(program.source)
            if found is not None and found.nodes >= MIN_NODES:
                yield found.hash
