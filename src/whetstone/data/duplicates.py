"""Find problems that are the same, across sources, and decide which one stays.

Two problems are the same if

- their statements are equal, except for formatting (``words.py``), and have at least ``MIN_WORDS`` words; or
- their tests have the same cases (``cases.py``), and enough of them to distinguish problems; or
- they are **near**: the Jaccard similarity of the 3-word shingles of their statements is at least ``near``,
  *and* there is other evidence. They share a test case, or their statements have the same words, numbers and
  operators in another order or layout. A common input with different outputs shows that they differ, unless a
  checker allows several answers.

So a template with other numbers, "sum" instead of "product", or the easy and hard version of a contest
problem are different problems, unless their tests agree. Such pairs are marked, not dropped.

Of several equal problems the first in this order stays: more tests, a checker, references, an earlier source,
the id. Every other one is dropped for a problem that stays, to which it is equal directly or through equal
problems. Being near is not transitive.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Struct

from whetstone.core.flag import Flag
from whetstone.core.problem import Problem
from whetstone.core.settings import PositiveShare, Section
from whetstone.data.decisions import ProblemDecision
from whetstone.data.similarity.cases import CaseSet, read_tests, shared_cases
from whetstone.data.similarity.minhash import buckets, estimate, signature
from whetstone.data.similarity.words import Words, jaccard, read_words, shingles, task_text

STEP = "dedupe"
NEAR = 0.8
# Different problems may share a shorter statement, such as "see the picture".
MIN_WORDS = 6

# Problems with common evidence that each problem of a bucket is compared with.
_MOST_COMPARED = 32
# Four standard errors of the estimated similarity. Pairs below the threshold by more are not compared.
_MARGIN = 0.25
# The cases of a problem that are remembered, which bounds the memory for large tests.
_MOST_CASES = 64

Rule = Literal["same_statement", "same_tests", "near_duplicate", "similar_statement"]


class Deduplication(Section):
    """The similarity from which statements are near."""

    near: Annotated[
        PositiveShare, Flag("Jaccard similarity of 3-word shingles from which statements are near", "SHARE")
    ] = NEAR


class DuplicateMatch(Struct, frozen=True):
    """A problem ``id`` that is the same as ``kept``, or has only a similar statement (``similar_statement``).

    ``similarity`` is that of the statements, estimated for ``similar_statement``. It is None if only the
    tests were compared.
    """

    id: str
    kept: str
    rule: Rule
    similarity: float | None
    source: str


class _Entry(Struct):
    """The facts about a problem that are kept in memory: a few hundred bytes."""

    id: str
    source: str
    order: tuple[int, bool, bool, int, str]
    statement: int | None
    tests: CaseSet
    bag: int
    several_answers: bool


def find_duplicates(read: Callable[[], Iterable[Problem]], settings: Deduplication) -> list[DuplicateMatch]:
    """Return every problem that equals another, with the one that stays, and pairs with similar statements.

    ``read`` returns the problems anew. It is called twice, so that memory has only hashes.
    """
    near = settings.near
    entries, signatures = _read(read())
    # All later passes go from the best problem down, so the result does not depend on the order of the set.
    ranked = sorted(range(len(entries)), key=lambda position: entries[position].order)
    leaders = _equal_leaders(entries, ranked)
    candidates, similar = _candidates(entries, signatures, ranked, near)
    return _resolve(entries, ranked, leaders, _confirm(entries, candidates, read, near), similar)


def drop_duplicates(
    matches: Iterable[DuplicateMatch],
) -> Callable[[Iterator[Problem]], Iterator[Problem | ProblemDecision]]:
    """Return the step that drops duplicates and marks problems with similar statements."""
    found = {match.id: match for match in matches}

    def step(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
        for problem in problems:
            match = found.get(problem.id)
            if match is not None:
                yield _decision(match)
            if match is None or match.rule == "similar_statement":
                yield problem

    return step


def _decision(match: DuplicateMatch) -> ProblemDecision:
    if match.rule == "similar_statement":
        detail = (
            f"reads like {match.kept} (about {match.similarity:.2f}), but nothing else says it is the same"
        )
        return ProblemDecision(match.id, STEP, "mark", match.rule, detail, match.source)
    what = {"same_statement": "the statement of", "same_tests": "the tests of"}.get(match.rule, "near")
    detail = f"{what} {match.kept}, which is kept"
    if match.similarity is not None:
        detail += f"; similarity of the statements {match.similarity:.2f}"
    return ProblemDecision(match.id, STEP, "drop", match.rule, detail, match.source)


def _read(problems: Iterable[Problem]) -> tuple[list[_Entry], list[array[int]]]:
    entries: list[_Entry] = []
    signatures: list[array[int]] = []
    sources: dict[str, int] = {}
    for problem in problems:
        words, tests = _statement_words(problem), read_tests(problem)
        entries.append(
            _Entry(
                id=problem.id,
                source=problem.source,
                order=(
                    -tests.count,
                    problem.checker is None,
                    not problem.references,
                    sources.setdefault(problem.source, len(sources)),
                    problem.id,
                ),
                # Short statements such as `Solve the problem.` are equal by chance.
                statement=words.exact if len(words.tokens) >= MIN_WORDS else None,
                tests=CaseSet(
                    tests.fingerprint, tests.inputs[:_MOST_CASES], tests.wholes[:_MOST_CASES], tests.count, ""
                ),
                bag=words.bag,
                several_answers=problem.checker is not None,
            )
        )
        signatures.append(signature(shingles(words.tokens)) if len(words.tokens) >= MIN_WORDS else array("I"))
    return entries, signatures


def _statement_words(problem: Problem) -> Words:
    return read_words(task_text(problem.statement, problem.starter))


def _equal_leaders(entries: list[_Entry], ranked: list[int]) -> dict[int, tuple[int, Rule]]:
    """Return for each problem that equals a better one, by statement or else by tests, that better one."""
    leaders: dict[int, tuple[int, Rule]] = {}
    statements: dict[int, int] = {}
    tests: dict[int, int] = {}
    for position in ranked:
        entry = entries[position]
        same_tests = tests.get(entry.tests.fingerprint) if entry.tests.fingerprint is not None else None
        same_statement = statements.get(entry.statement) if entry.statement is not None else None
        if same_statement is not None:
            leaders[position] = same_statement, "same_statement"
        elif same_tests is not None:
            leaders[position] = same_tests, "same_tests"
        if entry.statement is not None:
            statements.setdefault(entry.statement, position)
        if entry.tests.fingerprint is not None:
            tests.setdefault(entry.tests.fingerprint, position)
    return leaders


def _candidates(
    entries: list[_Entry], signatures: list[array[int]], ranked: list[int], near: float
) -> tuple[set[tuple[int, int]], dict[int, tuple[float, int]]]:
    """Return pairs (better, worse) with evidence whose statements may be near. Also return, for problems that
    have only a similar statement, the estimated similarity and the better problem.

    Within a bucket, problems with common evidence are compared, and each problem with the best. So a template
    with thousands of variants does not need millions of comparisons.
    """
    place = {position: rank for rank, position in enumerate(ranked)}
    pairs: set[tuple[int, int]] = set()
    similar: dict[int, tuple[float, int]] = {}
    common = _common_evidence(entries)
    for bucket in buckets(signatures, near):
        for pair in _pairs_in_bucket(entries, sorted(bucket, key=place.__getitem__), common):
            better, worse = pair
            if pair in pairs:
                continue
            # The estimate is cheap, and leaves few pairs for the exact comparison.
            likeness = estimate(signatures[better], signatures[worse])
            if likeness >= near - _MARGIN and _same_meaning(entries[better], entries[worse]):
                pairs.add(pair)
            elif likeness >= near:
                similar[worse] = max(similar.get(worse, (0.0, better)), (likeness, better))
    return pairs, similar


def _confirm(
    entries: list[_Entry], pairs: set[tuple[int, int]], read: Callable[[], Iterable[Problem]], near: float
) -> dict[int, list[tuple[float, int]]]:
    """Return for each problem the better problems that are near, with their exact similarity."""
    wanted = {entries[position].id for pair in pairs for position in pair}
    texts = {
        problem.id: array("Q", shingles(_statement_words(problem).tokens))
        # The statements are read again, since keeping all of them would take too much memory.
        for problem in (read() if wanted else ())
        if problem.id in wanted
    }
    confirmed: dict[int, list[tuple[float, int]]] = {}
    # Sorted, so that the result does not depend on the order of the set's elements.
    for better, worse in sorted(pairs):
        likeness = jaccard(set(texts[entries[better].id]), set(texts[entries[worse].id]))
        if likeness >= near:
            confirmed.setdefault(worse, []).append((likeness, better))
    return confirmed


def _common_evidence(entries: list[_Entry]) -> set[int]:
    """Return evidence of at least two problems: hashes of a test case, or of the words of a statement."""
    common: set[int] = set()
    # Most hashes are of one problem only. Sixteen passes need a sixteenth of the memory for them.
    for part in range(16):
        seen: set[int] = set()
        for entry in entries:
            for key in _evidence_keys(entry):
                if key % 16 == part:
                    (common if key in seen else seen).add(key)
    return common


def _evidence_keys(entry: _Entry) -> set[int]:
    return {entry.bag, *entry.tests.wholes}


def _pairs_in_bucket(
    entries: list[_Entry], members: list[int], common: set[int]
) -> Iterator[tuple[int, int]]:
    groups: dict[int, list[int]] = {}
    for number, position in enumerate(members):
        if number:
            yield members[0], position
        for key in _evidence_keys(entries[position]) & common:
            group = groups.setdefault(key, [])
            for other in group:
                yield other, position
            # Thousands of problems may share a test case such as an empty input.
            if len(group) < _MOST_COMPARED:
                group.append(position)


def _resolve(
    entries: list[_Entry],
    ranked: list[int],
    leaders: dict[int, tuple[int, Rule]],
    confirmed: dict[int, list[tuple[float, int]]],
    similar: dict[int, tuple[float, int]],
) -> list[DuplicateMatch]:
    """Decide from the best problem down: one that equals or is near a problem that stays is dropped."""
    kept: dict[int, int] = {}
    matches: list[DuplicateMatch] = []
    for position in ranked:
        entry = entries[position]
        # A problem that is near one that is dropped may itself be far from the one that stays.
        near = {b: likeness for likeness, b in confirmed.get(position, ()) if kept[b] == b}
        target, rule, likeness = position, None, None
        if position in leaders:
            leader, rule = leaders[position]
            target = kept[leader]
            likeness = 1.0 if rule == "same_statement" else near.get(target)
        elif near:
            target, likeness = min(near.items(), key=lambda item: (-item[1], entries[item[0]].order))
            rule = "near_duplicate"
        kept[position] = target
        if rule is None and position in similar:
            likeness, target = similar[position]
            rule = "similar_statement"
        if rule is not None:
            matches.append(DuplicateMatch(entry.id, entries[target].id, rule, likeness, entry.source))
    return matches


def _same_meaning(a: _Entry, b: _Entry) -> bool:
    """Return whether two problems with similar statements have the same meaning."""
    same, other = shared_cases(a.tests, b.tests)
    # Different outputs for one input show different problems, unless several outputs are right.
    if other and not (a.several_answers or b.several_answers):
        return False
    return same > 0 or a.bag == b.bag
