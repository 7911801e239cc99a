"""Problems that are the same problem, across sources: which one stays, and why the others go.

Two problems are the same when

- their statements are: equal characters, formatting aside (``words.py``), in statements of at least
  ``MIN_WORDS`` words; or
- their tests are: the same cases (``cases.py``), and enough of them to tell problems apart; or
- they are **near**: the Jaccard similarity of the 3-word shingles of their statements is at least
  ``near``, *and* something else says that both mean the same: they share a test case, or their
  statements have the same words, numbers and operators in another order or layout. One common input
  with different outputs says that they differ, unless a checker allows several answers.

So a template with other numbers in it, "sum" in place of "product", or the easy and the hard version of one
contest problem stay apart however alike their texts are, unless their tests agree: such pairs are
marked, not dropped.

Of problems that are the same the first in this order stays: more tests, a checker, references, the source
that came first, the id. Every other one is dropped in favour of one that stays, directly or through
problems equal to it: similarity is not carried on from neighbour to neighbour.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from whetstone.data.decisions import Decision
from whetstone.data.similarity.cases import CaseSet, read_tests, shared_cases
from whetstone.data.similarity.minhash import buckets, estimate, signature
from whetstone.data.similarity.words import Words, jaccard, read_words, shingles, task_text
from whetstone.errors import UserError
from whetstone.problem import Problem

STEP = "dedupe"
NEAR = 0.8
MIN_WORDS = 6
"""A shorter statement ("see the picture") may be shared by different problems."""

_COMPARED = 32
_MARGIN = 0.25  # four standard errors of the estimate: what it says is below is not compared
_KEPT_CASES = 64

Rule = Literal["same_statement", "same_tests", "near_duplicate", "similar_statement"]


class Match(Struct, frozen=True):
    """Problem ``id`` is the same as ``kept``, which stays (or, for ``similar_statement``, only reads alike).

    ``similarity`` is that of their statements, estimated for ``similar_statement``; None where only the tests
    were compared.
    """

    id: str
    kept: str
    rule: Rule
    similarity: float | None
    source: str


class _Entry(Struct):
    """What is remembered of a problem: a few hundred bytes, whatever its size."""

    id: str
    source: str
    order: tuple[int, bool, bool, int, str]
    statement: int | None
    tests: CaseSet
    bag: int
    several_answers: bool


def find_duplicates(read: Callable[[], Iterable[Problem]], near: float = NEAR) -> list[Match]:
    """Every problem that is the same as another one, with the one that stays; and pairs that read alike.

    ``read`` gives the problems anew each time: they are read twice, so that only hashes are kept in memory.
    Raises UserError unless 0 < near <= 1.
    """
    if not 0 < near <= 1:
        raise UserError(f"--near is {near}; give a similarity above 0 and up to 1, such as {NEAR}")
    entries, signatures = _read(read())
    ranked = sorted(range(len(entries)), key=lambda position: entries[position].order)
    leaders = _equal(entries, ranked)
    candidates, alike = _candidates(entries, signatures, ranked, near)
    return _resolve(entries, ranked, leaders, _confirmed(entries, candidates, read, near), alike)


def drop_duplicates(matches: Iterable[Match]) -> Callable[[Iterator[Problem]], Iterator[Problem | Decision]]:
    """The step that drops what was found, and marks what only reads alike."""
    found = {match.id: match for match in matches}

    def step(problems: Iterator[Problem]) -> Iterator[Problem | Decision]:
        for problem in problems:
            match = found.get(problem.id)
            if match is not None:
                yield _decision(match)
            if match is None or match.rule == "similar_statement":
                yield problem

    return step


def _decision(match: Match) -> Decision:
    if match.rule == "similar_statement":
        detail = (
            f"reads like {match.kept} (about {match.similarity:.2f}), but nothing else says it is the same"
        )
        return Decision(match.id, STEP, "mark", match.rule, detail, match.source)
    what = {"same_statement": "the statement of", "same_tests": "the tests of"}.get(match.rule, "near")
    detail = f"{what} {match.kept}, which is kept"
    if match.similarity is not None:
        detail += f"; similarity of the statements {match.similarity:.2f}"
    return Decision(match.id, STEP, "drop", match.rule, detail, match.source)


def _read(problems: Iterable[Problem]) -> tuple[list[_Entry], list[array[int]]]:
    entries: list[_Entry] = []
    signatures: list[array[int]] = []
    sources: dict[str, int] = {}
    for problem in problems:
        words, tests = _words(problem), read_tests(problem)
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
                statement=words.exact if len(words.tokens) >= MIN_WORDS else None,
                tests=CaseSet(
                    tests.fingerprint, tests.inputs[:_KEPT_CASES], tests.wholes[:_KEPT_CASES], tests.count, ""
                ),
                bag=words.bag,
                several_answers=problem.checker is not None,
            )
        )
        signatures.append(signature(shingles(words.tokens)) if len(words.tokens) >= MIN_WORDS else array("I"))
    return entries, signatures


def _words(problem: Problem) -> Words:
    return read_words(task_text(problem.statement, problem.starter))


def _equal(entries: list[_Entry], ranked: list[int]) -> dict[int, tuple[int, Rule]]:
    """For a problem that equals a better one, that one: by its statement, or else by its tests."""
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
    """Pairs (better, worse) with evidence whose statements may be near, by their signatures; and for problems
    that only read like a better one, the estimated similarity and that one.

    In a bucket, those with common evidence are compared, and every problem with the best: a template
    with thousands of variants costs no thousands of millions of comparisons.
    """
    place = {position: rank for rank, position in enumerate(ranked)}
    pairs: set[tuple[int, int]] = set()
    alike: dict[int, tuple[float, int]] = {}
    common = _common(entries)
    for bucket in buckets(signatures, near):
        for pair in _within(entries, sorted(bucket, key=place.__getitem__), common):
            better, worse = pair
            if pair in pairs:
                continue
            likeness = estimate(signatures[better], signatures[worse])
            if likeness >= near - _MARGIN and _evidence(entries[better], entries[worse]):
                pairs.add(pair)
            elif likeness >= near:
                alike[worse] = max(alike.get(worse, (0.0, better)), (likeness, better))
    return pairs, alike


def _confirmed(
    entries: list[_Entry], pairs: set[tuple[int, int]], read: Callable[[], Iterable[Problem]], near: float
) -> dict[int, list[tuple[float, int]]]:
    """For each problem that is near better ones, their exact similarities and them."""
    wanted = {entries[position].id for pair in pairs for position in pair}
    texts = {
        problem.id: array("Q", shingles(_words(problem).tokens))
        for problem in (read() if wanted else ())
        if problem.id in wanted
    }
    confirmed: dict[int, list[tuple[float, int]]] = {}
    for better, worse in sorted(pairs):
        likeness = jaccard(set(texts[entries[better].id]), set(texts[entries[worse].id]))
        if likeness >= near:
            confirmed.setdefault(worse, []).append((likeness, better))
    return confirmed


def _common(entries: list[_Entry]) -> set[int]:
    """What at least two problems have as evidence: hashes of a test case, or of the words of a statement."""
    common: set[int] = set()
    for part in range(16):  # a sixteenth of the hashes at a time: most of them are of one problem
        seen: set[int] = set()
        for entry in entries:
            for key in _evidence_keys(entry):
                if key % 16 == part:
                    (common if key in seen else seen).add(key)
    return common


def _evidence_keys(entry: _Entry) -> set[int]:
    return {entry.bag, *entry.tests.wholes}


def _within(entries: list[_Entry], members: list[int], common: set[int]) -> Iterator[tuple[int, int]]:
    groups: dict[int, list[int]] = {}
    for number, position in enumerate(members):
        if number:
            yield members[0], position
        for key in _evidence_keys(entries[position]) & common:
            group = groups.setdefault(key, [])
            for other in group:
                yield other, position
            if len(group) < _COMPARED:
                group.append(position)


def _resolve(
    entries: list[_Entry],
    ranked: list[int],
    leaders: dict[int, tuple[int, Rule]],
    confirmed: dict[int, list[tuple[float, int]]],
    alike: dict[int, tuple[float, int]],
) -> list[Match]:
    """From the best problem down: what equals or is near one that stays goes."""
    stays: dict[int, int] = {}
    matches: list[Match] = []
    for position in ranked:
        entry = entries[position]
        near = {b: likeness for likeness, b in confirmed.get(position, ()) if stays[b] == b}
        target, rule, likeness = position, None, None
        if position in leaders:
            leader, rule = leaders[position]
            target = stays[leader]
            likeness = 1.0 if rule == "same_statement" else near.get(target)
        elif near:
            target, likeness = min(near.items(), key=lambda item: (-item[1], entries[item[0]].order))
            rule = "near_duplicate"
        stays[position] = target
        if rule is None and position in alike:
            likeness, target = alike[position]
            rule = "similar_statement"
        if rule is not None:
            matches.append(Match(entry.id, entries[target].id, rule, likeness, entry.source))
    return matches


def _evidence(a: _Entry, b: _Entry) -> bool:
    """Whether two problems that read alike mean the same."""
    same, other = shared_cases(a.tests, b.tests)
    if other and not (a.several_answers or b.several_answers):
        return False
    return same > 0 or a.bag == b.bag
