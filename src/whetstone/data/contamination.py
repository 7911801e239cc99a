"""Problems of a set that a benchmark holds too: found by eight rules, dropped with the rule and its measure.

- ``same_statement``: the statement is the benchmark problem's, formatting aside.
- ``same_tests``: the tests are; or the function has the same name and at least half of the benchmark's
  cases are shared; or, whatever the name, at least five cases and four of five are.
- ``same_solution``: a reference is the benchmark's own solution, names and layout aside, and too large to be
  written twice by chance.
- ``ngrams``: of the runs of n words (8, as open-r1 does; 13 and 16 are used too) at least the share
  ``overlap`` is common to both, of the shorter statement's. open-r1 drops for a single one; here runs
  that say nothing do not count: those in ``COMMON`` or more statements of the benchmarks, and those in more
  than one of a hundred statements of the set. "Write a function that takes a list of integers and returns
  the sum of" convicts nobody.
- ``similar_statement``: the Jaccard similarity of the 3-word shingles is at least ``similar``.
- ``shared_cases``: half of its own or of the benchmark's cases, two at least, whatever the function is called
  and whether it is a function or a program (``flat_cases.py``), which say too much to be shared by chance; or
  three cases at least that are most of its own, which have to say less.
- ``reworded``: the statement, or a part of a longer one, has the telling words of the benchmark's, synonyms
  as one, and its runs of characters (``gist_index.py``): the less it says, the more alike they have to be.
- ``together``: statement, cases, solution and the function's name convict together (``evidence.py``).

The rules about statements look at prose only: lines of code, asserts and doctests are left out. What comes
near a threshold without reaching it is reported, so that it can be judged by eye.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Literal

from msgspec import Struct

from whetstone.data.benchmark_index import MIN_NODES, BenchmarkIndex, Item, read_item, read_text
from whetstone.data.decisions import Decision
from whetstone.data.evidence import Evidence, gather
from whetstone.data.similarity.words import jaccard
from whetstone.errors import UserError
from whetstone.problem import Problem

STEP = "decontaminate"
REASON = "contaminated"
NEAR_MISSES = 20

_COMMON_IN_SET = 20
_MIN_RUNS = 3
_SAME_NAME, _ANY_NAME = 0.5, 0.8
_MIN_CASES = 5

Rule = Literal[
    "same_statement",
    "same_tests",
    "same_solution",
    "ngrams",
    "similar_statement",
    "shared_cases",
    "reworded",
    "together",
]


class Thresholds(Struct, frozen=True):
    """From which measure on a problem counts as the benchmark's. Raises UserError for what is none.

    ``reworded`` multiplies the likeness that is asked for, which depends on how much a statement says.
    """

    ngram: int = 8
    overlap: float = 0.15
    similar: float = 0.8
    reworded: float = 1.0
    together: float = 1.0

    def __post_init__(self) -> None:
        if self.ngram < 4:
            raise UserError(f"--ngram is {self.ngram}; give 8, 13 or 16: shorter runs are in every text")
        for name, share in (("overlap", self.overlap), ("similar", self.similar)):
            if not 0 < share <= 1:
                raise UserError(f"--{name} is {share}; give a share above 0 and up to 1")
        for name, times in (("reworded", self.reworded), ("together", self.together)):
            if not 0 < times < inf:
                raise UserError(f"--{name} is {times}; give a number above 0: 1 is usual, more convicts less")


class Match(Struct, frozen=True):
    """A problem, the benchmark's that it resembles, by which rule and how much (1 is entirely)."""

    problem_id: str
    source: str
    benchmark: str
    benchmark_id: str
    rule: Rule
    measure: float
    threshold: float
    detail: str

    @property
    def where(self) -> str:
        """The benchmark and its problem; ids of sources begin with the source's name already."""
        known = self.benchmark_id.startswith(f"{self.benchmark}/")
        return self.benchmark_id if known else f"{self.benchmark} {self.benchmark_id}"

    @property
    def contaminated(self) -> bool:
        """Whether the rule's threshold is reached."""
        return self.measure >= self.threshold


class Contamination(Struct, frozen=True):
    """What was found: by problem id what is contaminated, and the nearest misses, the nearest first."""

    checked: int
    found: dict[str, Match]
    near_misses: list[Match]


def find_contamination(
    read: Callable[[], Iterable[Problem]], index: BenchmarkIndex, thresholds: Thresholds
) -> Contamination:
    """Hold every problem against the benchmarks. ``read`` gives the problems anew; it is asked twice."""
    common = _read_set(read(), index)
    found: dict[str, Match] = {}
    misses: list[tuple[float, int, Match]] = []
    checked = 0
    for problem in read():
        checked += 1
        matches = list(_matches(problem, index, thresholds, common))
        hit = next((match for match in matches if match.contaminated), None)
        if hit is not None:
            found[problem.id] = hit
            continue
        closest = max(matches, key=lambda match: match.measure / match.threshold, default=None)
        if closest is not None and closest.measure >= closest.threshold / 4:
            heapq.heappush(misses, (closest.measure / closest.threshold, -checked, closest))
            if len(misses) > NEAR_MISSES:
                heapq.heappop(misses)
    return Contamination(checked, found, [match for _, _, match in sorted(misses, reverse=True)])


def drop_contaminated(
    found: dict[str, Match],
) -> Callable[[Iterator[Problem]], Iterator[Problem | Decision]]:
    """The step that drops what was found."""

    def step(problems: Iterator[Problem]) -> Iterator[Problem | Decision]:
        for problem in problems:
            match = found.get(problem.id)
            if match is None:
                yield problem
                continue
            detail = f"{match.where}, {match.rule}: {match.detail}"
            yield Decision(problem.id, STEP, "drop", REASON, detail, problem.source)

    return step


def _read_set(problems: Iterable[Problem], index: BenchmarkIndex) -> set[int]:
    """Count the words of the set.

    Returns the runs of words of the benchmarks that too many of its statements have for them to say anything.
    """
    counts: Counter[int] = Counter()
    texts: set[int] = set()
    for problem in problems:
        text, runs, words = read_text(problem, index.ngram)
        if text not in texts:  # copies of one statement do not make its words common
            texts.add(text)
            index.gists.count(words)
            counts.update(run for run in runs if index.has_run(run))
    bound = max(_COMMON_IN_SET, len(texts) // 100)
    return {run for run, count in counts.items() if count > bound}


def _matches(
    problem: Problem, index: BenchmarkIndex, thresholds: Thresholds, common: set[int]
) -> Iterator[Match]:
    """What the rules say, in their order, whether their thresholds are reached or not."""
    item = read_item(problem, index.ngram)

    def match(other: Item, rule: Rule, measure: float, threshold: float, detail: str) -> Match:
        ids = (problem.id, problem.source, other.benchmark, other.id)
        return Match(*ids, rule, measure, threshold, detail)

    if item.statement is not None and item.statement in index.statements:
        yield match(index.statements[item.statement], "same_statement", 1.0, 1.0, "all of it")
    if item.tests.fingerprint is not None and item.tests.fingerprint in index.fingerprints:
        yield match(index.fingerprints[item.tests.fingerprint], "same_tests", 1.0, 1.0, "all of them")
    for other, count in index.by_cases(set(item.tests.wholes)):
        bound = _case_bound(item, other, count)
        if bound:
            total = len(set(other.tests.wholes))
            yield match(other, "same_tests", count / total, bound, f"{count} of {total} cases")
    for solution in item.solutions:
        if item.solutions[solution] >= MIN_NODES and solution in index.solutions:
            yield match(index.solutions[solution], "same_solution", 1.0, 1.0, "a reference, names aside")
    telling = {run for run in item.runs if not index.is_common(run) and run not in common}
    for other, count in index.by_runs(telling):
        theirs = sum(not index.is_common(run) and run not in common for run in other.runs)
        shorter = min(theirs, len(telling))
        if count >= _MIN_RUNS:
            said = f"{count} of {shorter} runs of {index.ngram} words ({count / shorter:.2f})"
            yield match(other, "ngrams", count / shorter, thresholds.overlap, said)
    for other, _ in index.by_shingles(item.shingles):
        likeness = jaccard(item.shingles, other.shingles)
        said = f"similarity {likeness:.2f}"
        yield match(other, "similar_statement", likeness, thresholds.similar, said)
    for evidence in gather(item, index):
        for rule, measure, threshold, said in _verdicts(evidence, thresholds):
            yield match(evidence.other, rule, measure, threshold, said)


def _verdicts(evidence: Evidence, thresholds: Thresholds) -> Iterator[tuple[Rule, float, float, str]]:
    """What cases and statement say by themselves, and all evidence together."""
    if evidence.cases > 0:
        yield "shared_cases", evidence.cases, 1.0, evidence.case_words
    likeness = evidence.likeness
    if likeness is not None and evidence.text > 0:
        yield "reworded", likeness.value, likeness.bound * thresholds.reworded, evidence.text_words
    if evidence.total > max(evidence.cases, evidence.text):
        yield "together", evidence.total, thresholds.together, evidence.words


def _case_bound(item: Item, other: Item, count: int) -> float:
    """The share of the benchmark's cases that convicts; 0 where so few can be shared by chance."""
    name = item.tests.name.casefold()
    if name and name == other.tests.name.casefold() and count >= 2:
        return _SAME_NAME
    return _ANY_NAME if count >= _MIN_CASES else 0.0
