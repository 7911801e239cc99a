"""Find problems of a set that are also in a benchmark. Eight rules decide; each gives a measure.

- ``same_statement``: the statements are equal, except for formatting.
- ``same_tests``: the tests are equal. Or the functions have the same name and share half of the benchmark's
  cases. Or at least five cases are shared, and these are four of five.
- ``same_solution``: a reference is the benchmark's solution, except for names and layout, and too large for
  chance.
- ``ngrams``: the share of common runs of n words, of the shorter statement, is at least ``overlap``. n is 8,
  as in open-r1; 13 and 16 are also usual. open-r1 drops a problem for a single run. Here, frequent runs do
  not count: those in ``COMMON`` statements of the benchmarks, or in more than one of a hundred statements of
  the set. "Write a function that takes a list of integers and returns the sum of" is no evidence.
- ``similar_statement``: the Jaccard similarity of 3-word shingles is at least ``similar``.
- ``shared_cases``: at least two cases are shared, they are half of the cases of one problem, and they have
  too much information for chance. Names and kinds of test do not matter (``flat_cases.py``). Less information
  is enough for at least three cases that are most of the problem's own.
- ``reworded``: the statement, or a part of a longer one, has the informative words of the benchmark's, with
  synonyms as one word, and its runs of characters (``gist_index.py``). Short statements need a higher
  similarity.
- ``together``: the sum of the evidence of statement, cases, solution and name is large enough.

The rules about statements ignore lines of code, asserts and doctests. Problems near a threshold are reported,
so that a person can decide.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BeforeValidator, Field

from whetstone.core.flag import Flag
from whetstone.core.problem import Problem
from whetstone.core.settings import NonEmpty, Positive, PositiveShare, Section
from whetstone.data.benchmark_index import MIN_NODES, BenchmarkIndex, IndexedProblem, read_item, read_text
from whetstone.data.decisions import ProblemDecision
from whetstone.data.gist_index import Likeness
from whetstone.data.similarity.flat_cases import FlatCase
from whetstone.data.similarity.words import jaccard

STEP = "decontaminate"
REASON = "contaminated"
NEAR_MISSES = 20

# A run in more statements of the set than this, or than one of a hundred, is no evidence.
_COMMON_IN_SET = 20
# A smaller number of common runs can be chance, even in a short statement.
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


class Thresholds(Section):
    """The measures from which a problem counts as contaminated.

    ``reworded`` multiplies the required similarity, which depends on the information of a statement.
    """

    ngram: Annotated[int, Field(ge=4), Flag("words in a run: 8, 13 or 16 are usual", "N")] = 8
    overlap: Annotated[
        PositiveShare, Flag("share of the shorter statement's runs that convicts", "SHARE")
    ] = 0.15
    similar: Annotated[
        PositiveShare, Flag("Jaccard similarity of 3-word shingles that convicts", "SHARE")
    ] = 0.8
    reworded: Annotated[
        Positive, Flag("factor on the likeness from which a reworded statement convicts; 2 is never", "TIMES")
    ] = 1.0
    together: Annotated[
        Positive, Flag("sum of the evidence of statement, cases, solution and name that convicts", "SUM")
    ] = 1.0


def _named_paths(value: Any) -> Any:
    """Convert ``NAME[=PATH],…`` of a command line to a mapping. A file has the mapping itself."""
    if not isinstance(value, str):
        return value
    pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
    return {name: path or None for name, _, path in pairs}


class Decontamination(Thresholds):
    """The thresholds and the benchmarks with their files or problem sets; None to fetch a benchmark."""

    against: Annotated[
        dict[NonEmpty, NonEmpty | None],
        Field(min_length=1),
        BeforeValidator(_named_paths),
        Flag(
            "benchmarks of `whetstone eval` with their files, or NAME=SET for a problem set", "NAME[=PATH],…"
        ),
    ]


class ContaminationMatch(Struct, frozen=True):
    """A problem that resembles one of a benchmark, with the rule and its measure (1: entirely)."""

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
        """The benchmark and its problem. Some ids begin with the benchmark's name already."""
        known = self.benchmark_id.startswith(f"{self.benchmark}/")
        return self.benchmark_id if known else f"{self.benchmark} {self.benchmark_id}"

    @property
    def contaminated(self) -> bool:
        """Whether the measure reaches the threshold."""
        return self.measure >= self.threshold


class Contamination(Struct, frozen=True):
    """The contaminated problems by id, and the nearest misses in order."""

    checked: int
    found: dict[str, ContaminationMatch]
    near_misses: list[ContaminationMatch]


def find_contamination(
    read: Callable[[], Iterable[Problem]], index: BenchmarkIndex, thresholds: Thresholds
) -> Contamination:
    """Compare every problem with the benchmarks. ``read`` returns the problems anew; it is called twice."""
    common = _count_words(read(), index)
    found: dict[str, ContaminationMatch] = {}
    misses: list[tuple[float, int, ContaminationMatch]] = []
    checked = 0
    for problem in read():
        checked += 1
        matches = list(_matches(problem, index, thresholds, common))
        hit = next((match for match in matches if match.contaminated), None)
        if hit is not None:
            found[problem.id] = hit
            continue
        closest = max(matches, key=lambda match: match.measure / match.threshold, default=None)
        # Only measures that a person could want to check are worth a place among the near misses.
        if closest is not None and closest.measure >= closest.threshold / 4:
            heapq.heappush(misses, (closest.measure / closest.threshold, -checked, closest))
            # A heap of bounded size, since a set may have millions of problems.
            if len(misses) > NEAR_MISSES:
                heapq.heappop(misses)
    return Contamination(checked, found, [match for _, _, match in sorted(misses, reverse=True)])


def drop_contaminated(
    found: dict[str, ContaminationMatch],
) -> Callable[[Iterator[Problem]], Iterator[Problem | ProblemDecision]]:
    """Return the step that drops contaminated problems."""

    def step(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
        for problem in problems:
            match = found.get(problem.id)
            if match is None:
                yield problem
                continue
            detail = f"{match.where}, {match.rule}: {match.detail}"
            yield ProblemDecision(problem.id, STEP, "drop", REASON, detail, problem.source)

    return step


def _count_words(problems: Iterable[Problem], index: BenchmarkIndex) -> set[int]:
    """Count the words of the set. Return the runs of the benchmarks that are too common in it
    to be evidence."""
    counts: Counter[int] = Counter()
    texts: set[int] = set()
    for problem in problems:
        text, runs, words = read_text(problem, index.ngram)
        # Copies of a statement must not make its words common.
        if text not in texts:
            texts.add(text)
            index.gists.count(words)
            counts.update(run for run in runs if index.has_run(run))
    # In a large set a run may be common by chance in more texts.
    bound = max(_COMMON_IN_SET, len(texts) // 100)
    return {run for run, count in counts.items() if count > bound}


def _matches(
    problem: Problem, index: BenchmarkIndex, thresholds: Thresholds, common: set[int]
) -> Iterator[ContaminationMatch]:
    """Yield the measures of all rules in their order, also those below the threshold."""
    item = read_item(problem, index.ngram)

    def match(
        other: IndexedProblem, rule: Rule, measure: float, threshold: float, detail: str
    ) -> ContaminationMatch:
        ids = (problem.id, problem.source, other.benchmark, other.id)
        return ContaminationMatch(*ids, rule, measure, threshold, detail)

    if item.statement is not None and item.statement in index.statements:
        yield match(index.statements[item.statement], "same_statement", 1.0, 1.0, "all of it")
    if item.tests.fingerprint is not None and item.tests.fingerprint in index.fingerprints:
        yield match(index.fingerprints[item.tests.fingerprint], "same_tests", 1.0, 1.0, "all of them")
    for other, count in index.by_cases(set(item.tests.wholes)):
        bound = _case_bound(item, other, count)
        if bound:
            total = len(set(other.tests.wholes))
            yield match(other, "same_tests", count / total, bound, f"{count} of {total} cases")
    # A short solution, such as a one-line loop, is written independently by many people.
    for solution in item.solutions:
        if item.solutions[solution] >= MIN_NODES and solution in index.solutions:
            yield match(index.solutions[solution], "same_solution", 1.0, 1.0, "a reference, names aside")
    informative = {run for run in item.runs if not index.is_common(run) and run not in common}
    for other, count in index.by_runs(informative):
        theirs = sum(not index.is_common(run) and run not in common for run in other.runs)
        # A short problem can be contained in a long one.
        shorter = min(theirs, len(informative))
        if count >= _MIN_RUNS:
            detail = f"{count} of {shorter} runs of {index.ngram} words ({count / shorter:.2f})"
            yield match(other, "ngrams", count / shorter, thresholds.overlap, detail)
    for other, _ in index.by_shingles(item.shingles):
        likeness = jaccard(item.shingles, other.shingles)
        detail = f"similarity {likeness:.2f}"
        yield match(other, "similar_statement", likeness, thresholds.similar, detail)
    for evidence in collect_evidence(item, index):
        for rule, measure, threshold, detail in _evidence_matches(evidence, thresholds):
            yield match(evidence.other, rule, measure, threshold, detail)


def _evidence_matches(
    evidence: _CopyEvidence, thresholds: Thresholds
) -> Iterator[tuple[Rule, float, float, str]]:
    """Yield the rules that use cases, statement and all evidence together, with their measures."""
    if evidence.cases > 0:
        yield "shared_cases", evidence.cases, 1.0, evidence.case_words
    likeness = evidence.likeness
    if likeness is not None and evidence.text > 0:
        yield "reworded", likeness.value, likeness.bound * thresholds.reworded, evidence.text_words
    # A single kind of evidence is measured by the rule above for it.
    if evidence.total > max(evidence.cases, evidence.text):
        yield "together", evidence.total, thresholds.together, evidence.words


def _case_bound(item: IndexedProblem, other: IndexedProblem, count: int) -> float:
    """Return the share of the benchmark's cases that decides; 0 if so few can be shared by chance."""
    name = item.tests.name.casefold()
    if name and name == other.tests.name.casefold() and count >= 2:
        return _SAME_NAME
    return _ANY_NAME if count >= _MIN_CASES else 0.0


# The information of shared cases that is full evidence, in bits: if they are half of the cases, or all.
HALF_BITS, ALL_BITS = 40.0, 30.0
# The same for at least three shared cases: if they are three of four cases of the problem, and if they are
# also three of four cases of the benchmark's problem. Of different problems (HumanEval, MBPP, the shipped
# set), some share 8 bits in the first way. None shares a case in the second.
OWN_BITS, BOTH_BITS = 20.0, 14.0

# Different problems share this much by chance, so it is no evidence.
_CHANCE_BITS = 8.0
# The ratio of similarity to its bound from which statements are evidence.
_CHANCE_LIKENESS = 0.55
_HALF = 0.5
_MOST_SHARE = 0.75
_FEW_CASES = 2
_SEVERAL_CASES = 3
# A function of a reference, or a name, may be common. Neither is enough alone.
_FUNCTION_EVIDENCE = 0.6
_NAME_EVIDENCE = 0.2
# Shorter names, such as `solve` and `main`, are in many problems.
_LONG_NAME = 8


class _CopyEvidence(Struct, frozen=True):
    """The evidence that a problem is ``other`` of a benchmark. Each kind is in [0, 1]."""

    other: IndexedProblem
    text: float
    cases: float
    program: float
    name: float
    likeness: Likeness | None
    shared: int
    bits: float

    @property
    def total(self) -> float:
        """The sum of all evidence."""
        return self.text + self.cases + self.program + self.name

    @property
    def case_words(self) -> str:
        """The number of shared cases and their information, as text."""
        return f"{self.shared} of {len(self.other.cases)} cases, {self.bits:.0f} bits"

    @property
    def text_words(self) -> str:
        """The similarity of the statements, as text."""
        if self.likeness is None:
            return ""
        what = "likeness of a part" if self.likeness.part else "likeness"
        return f"{what} {self.likeness.value:.2f} of {self.likeness.bound:.2f}"

    @property
    def words(self) -> str:
        """All evidence above zero, as text."""
        kinds = (
            (self.text, self.text_words),
            (self.cases, self.case_words),
            (self.program, "the solution, names aside"),
            (self.name, f"the name {self.other.tests.name}"),
        )
        return "; ".join(f"{words} ({value:.2f})" for value, words in kinds if value > 0)


def collect_evidence(item: IndexedProblem, index: BenchmarkIndex) -> Iterator[_CopyEvidence]:
    """Yield the evidence for every problem of the benchmarks that may be this one."""
    similar = index.gists.near(item.words)
    cases = index.by_flat_cases(item.cases)
    programs = _solution_evidence(item, index)
    for number in sorted(similar.keys() | cases.keys() | programs.keys()):
        other, shared = index.items[number], cases.get(number, [])
        name = item.tests.name.casefold()
        same_name = len(name) >= _LONG_NAME and name == other.tests.name.casefold()
        case_value = _case_evidence(item, other, shared)
        likeness = similar.get(number)
        # Comparing statements is expensive. Without similar words, it is done only if other evidence exists.
        if likeness is None and (case_value > 0.2 or number in programs):
            likeness = index.gists.likeness(item.words, number)
        yield _CopyEvidence(
            other=other,
            text=0.0 if likeness is None else _scale(likeness.ratio, _CHANCE_LIKENESS, 1.0),
            cases=case_value,
            program=programs.get(number, 0.0),
            name=_NAME_EVIDENCE if same_name else 0.0,
            likeness=likeness,
            shared=len(shared),
            bits=sum(case.bits for case in shared),
        )


def _solution_evidence(item: IndexedProblem, index: BenchmarkIndex) -> dict[int, float]:
    """Return the evidence of solutions by the number of the benchmark's problem: a reference, or a function
    in one, is the same."""
    found: dict[int, float] = {}
    for solutions, most in ((item.functions, _FUNCTION_EVIDENCE), (item.solutions, 1.0)):
        for solution, nodes in solutions.items():
            for number in index.by_solution(solution):
                # A whole reference is stronger evidence than one of its functions.
                found[number] = max(found.get(number, 0.0), min(nodes / MIN_NODES, most))
    return found


def _case_evidence(item: IndexedProblem, other: IndexedProblem, shared: list[FlatCase]) -> float:
    """Return the evidence of shared cases. It is lower for a small part of both problems, or a
    single case."""
    if not shared:
        return 0.0
    part = min(len(shared) / min(len(other.cases), max(len(item.cases), _FEW_CASES + 1)), 1.0)
    enough = HALF_BITS + (ALL_BITS - HALF_BITS) * _scale(part, _HALF, 1.0)
    bits = sum(case.bits for case in shared)
    found = _scale(bits, _CHANCE_BITS, enough) * min(part / _HALF, 1.0)
    return max(
        found * (1.0 if len(shared) >= _FEW_CASES else _HALF), _evidence_of_most_cases(item, other, shared)
    )


def _evidence_of_most_cases(item: IndexedProblem, other: IndexedProblem, shared: list[FlatCase]) -> float:
    """Return the evidence of shared cases that are most of the problem's. Equal cases count once."""
    # Repeated cases are no further evidence.
    different = {case.wholes: case.bits for case in shared}
    if len(different) < _SEVERAL_CASES:
        return 0.0
    own, theirs = (len(different) / len({case.wholes for case in each.cases}) for each in (item, other))
    bits = sum(different.values())
    by_own = _scale(bits, _CHANCE_BITS, OWN_BITS) * _scale(own, _HALF, _MOST_SHARE)
    by_both = _scale(bits, 0.0, BOTH_BITS) * _scale(min(own, theirs), _HALF, _MOST_SHARE)
    return max(by_own, by_both)


def _scale(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)
