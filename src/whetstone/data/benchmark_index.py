"""An index of benchmarks: where each statement, run of words, test case and solution occurs."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.gist_index import GistIndex
from whetstone.data.similarity.cases import CaseSet, read_tests
from whetstone.data.similarity.flat_cases import FlatCase, read_cases
from whetstone.data.similarity.gist import gist_words
from whetstone.data.similarity.programs import read_functions, read_program
from whetstone.data.similarity.words import prose, read_words, shingles, task_text

# A run of words in so many statements of the benchmarks is no evidence.
COMMON = 5

# Syntax nodes of a solution that is not written twice by chance.
MIN_NODES = 28

# Fewest syntax nodes of a solution that counts as evidence.
SHORT_NODES = 16

# Words of a statement that is not written twice by chance.
MIN_WORDS = 6

# Shingles in more problems than this select too many problems to be useful.
_MOST_RARE = 50


class IndexedProblem(Struct, frozen=True):
    """The features of a problem that are compared. ``shingles``, ``runs`` and ``words`` are of its prose.

    ``solutions`` maps hashes of references to their numbers of syntax nodes; ``functions`` does so for the
    functions in them. Those below ``SHORT_NODES`` nodes are left out.
    """

    benchmark: str
    id: str
    statement: int | None
    text: int
    tests: CaseSet
    cases: list[FlatCase]
    shingles: frozenset[int]
    runs: frozenset[int]
    words: tuple[str, ...]
    solutions: dict[int, int]
    functions: dict[int, int]


def read_item(problem: Problem, ngram: int, benchmark: str = "") -> IndexedProblem:
    """Return the features of a problem, with runs of ``ngram`` words."""
    text = task_text(problem.statement, problem.starter)
    whole, words = read_words(text), read_words(prose(text))
    solutions, functions = _solutions(problem)
    return IndexedProblem(
        benchmark=benchmark,
        id=problem.id,
        statement=whole.exact if len(whole.tokens) >= MIN_WORDS else None,
        text=words.exact,
        tests=read_tests(problem),
        cases=read_cases(problem),
        shingles=frozenset(shingles(words.tokens)),
        runs=frozenset(shingles(words.tokens, ngram)),
        words=tuple(gist_words(text)),
        solutions=solutions,
        functions=functions,
    )


def read_text(problem: Problem, ngram: int) -> tuple[int, set[int], list[str]]:
    """Return three features of ``read_item``: a hash of the prose, its runs of ``ngram`` words, and its
    words."""
    text = task_text(problem.statement, problem.starter)
    words = read_words(prose(text))
    return words.exact, shingles(words.tokens, ngram), gist_words(text)


class BenchmarkIndex:
    """The problems of the benchmarks, indexed by all features that another problem may share with them."""

    def __init__(self, ngram: int) -> None:
        self.ngram = ngram
        self.sizes: Counter[str] = Counter()
        self.statements: dict[int, IndexedProblem] = {}
        self.fingerprints: dict[int, IndexedProblem] = {}
        self.solutions: dict[int, IndexedProblem] = {}
        self.gists = GistIndex()
        self.items: list[IndexedProblem] = []
        self._flat: defaultdict[int, set[int]] = defaultdict(set)
        self._short: defaultdict[int, set[int]] = defaultdict(set)
        self._cases: dict[int, array[int]] = {}
        self._shingles: dict[int, array[int]] = {}
        self._runs: dict[int, array[int]] = {}
        self._texts: set[int] = set()
        self._statement_counts: Counter[int] = Counter()

    def add(self, benchmark: str, problems: Iterable[Problem]) -> None:
        """Add a benchmark. Raises UserError if it has no problems."""
        for problem in problems:
            self.sizes[benchmark] += 1
            self._add(read_item(problem, self.ngram, benchmark))
        if not self.sizes[benchmark]:
            raise UserError(f"--against {benchmark}: contains no problems")

    def _add(self, item: IndexedProblem) -> None:
        number = len(self.items)
        self.items.append(item)
        self.gists.add(item.words)
        for case in item.cases:
            for whole in case.wholes:
                self._flat[whole].add(number)
        if item.statement is not None:
            self.statements.setdefault(item.statement, item)
        if item.tests.fingerprint is not None:
            self.fingerprints.setdefault(item.tests.fingerprint, item)
        for solution, nodes in item.solutions.items():
            self._short[solution].add(number)
            if nodes >= MIN_NODES:
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
            self._statement_counts.update(item.runs)

    def is_common(self, run: int) -> bool:
        """Return whether a run of words is in too many statements to be evidence."""
        return self._statement_counts[run] >= COMMON

    def has_run(self, run: int) -> bool:
        """Return whether any statement has a run of words."""
        return run in self._runs

    def by_cases(self, wholes: Iterable[int]) -> Iterator[tuple[IndexedProblem, int]]:
        """Yield problems that share test cases, with the number of them, in falling order."""
        return self._most_shared(self._cases, wholes, len(self.items))

    def by_runs(self, runs: Iterable[int]) -> Iterator[tuple[IndexedProblem, int]]:
        """Yield problems that share runs of words, with the number of them, in falling order."""
        return self._most_shared(self._runs, runs, len(self.items))

    def by_flat_cases(self, cases: Iterable[FlatCase]) -> dict[int, list[FlatCase]]:
        """Return the shared cases by the number of the problem."""
        shared: defaultdict[int, list[FlatCase]] = defaultdict(list)
        for case in cases:
            for number in {n for whole in case.wholes for n in self._flat.get(whole, ())}:
                shared[number].append(case)
        return shared

    def by_solution(self, solution: int) -> Iterable[int]:
        """Return the numbers of the problems with this reference, also a short one."""
        return self._short.get(solution, ())

    def by_shingles(self, found: Iterable[int]) -> Iterator[tuple[IndexedProblem, int]]:
        """Yield problems that share rare shingles, with the number of them, in falling order."""
        return self._most_shared(self._shingles, found, _MOST_RARE)

    def _most_shared(
        self, index: dict[int, array[int]], keys: Iterable[int], rare: int
    ) -> Iterator[tuple[IndexedProblem, int]]:
        counts: Counter[int] = Counter()
        for key in keys:
            places = index.get(key)
            if places is not None and len(places) <= rare:
                counts.update(places)
        return ((self.items[number], count) for number, count in counts.most_common(3))


def _solutions(problem: Problem) -> tuple[dict[int, int], dict[int, int]]:
    whole: dict[int, int] = {}
    parts: dict[int, int] = {}
    for program in problem.references:
        if not program.language.startswith(("python", "pypy")):
            continue
        found = read_program(program.source)
        if found is not None and found.nodes >= SHORT_NODES:
            whole[found.hash] = found.nodes
            parts |= {f.hash: f.nodes for f in read_functions(program.source) if f.nodes >= SHORT_NODES}
    return whole, parts
