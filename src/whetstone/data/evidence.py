"""What speaks for two problems being one, weighed together where nothing of it convicts by itself.

Each kind of evidence is measured from 0, what two problems share by chance, to 1, what they do not. Kinds
that have nothing to do with each other add up: half a likeness of the statements and half of what shared
cases would have to say convict together.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from whetstone.data.benchmark_index import MIN_NODES, BenchmarkIndex, Item
from whetstone.data.gist_index import Likeness
from whetstone.data.similarity.flat_cases import FlatCase

HALF_BITS, ALL_BITS = 40.0, 30.0
"""What shared cases have to say together, in bits: where they are half of the cases, and all of them."""
OWN_BITS, BOTH_BITS = 20.0, 14.0
"""The same for three shared cases or more: where three of four cases of the problem are the benchmark's, and
where so many of the benchmark's are the problem's, too. Of different problems (HumanEval, MBPP, what ships)
some share 8 bits in the first way, and none shares anything in the second."""

_CHANCE_BITS = 8.0
_CHANCE_LIKENESS = 0.55
_HALF = 0.5
_MOST = 0.75
_FEW = 2
_SEVERAL = 3
_FUNCTION = 0.6
_NAME = 0.2
_LONG_NAME = 8


class Evidence(Struct, frozen=True):
    """For a problem being the benchmark's ``other``: what each kind says in [0, 1], and in words."""

    other: Item
    text: float
    cases: float
    program: float
    name: float
    likeness: Likeness | None
    shared: int
    bits: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.text + self.cases + self.program + self.name

    @property
    def case_words(self) -> str:
        """How many cases are shared, and what they say."""
        return f"{self.shared} of {len(self.other.cases)} cases, {self.bits:.0f} bits"

    @property
    def text_words(self) -> str:
        """How alike the statements are."""
        if self.likeness is None:
            return ""
        what = "likeness of a part" if self.likeness.part else "likeness"
        return f"{what} {self.likeness.value:.2f} of {self.likeness.bound:.2f}"

    @property
    def words(self) -> str:
        """Every kind that says anything, with its share."""
        kinds = (
            (self.text, self.text_words),
            (self.cases, self.case_words),
            (self.program, "the solution, names aside"),
            (self.name, f"the name {self.other.tests.name}"),
        )
        return "; ".join(f"{said} ({value:.2f})" for value, said in kinds if value > 0)


def gather(item: Item, index: BenchmarkIndex) -> Iterator[Evidence]:
    """The evidence for every problem of the benchmarks that this one may be."""
    alike = index.gists.near(item.words)
    cases = index.by_flat_cases(item.cases)
    programs = _programs(item, index)
    for number in sorted(alike.keys() | cases.keys() | programs.keys()):
        other, shared = index.items[number], cases.get(number, [])
        said = _case_evidence(item, other, shared)
        likeness = alike.get(number)
        if likeness is None and (said > 0.2 or number in programs):
            likeness = index.gists.likeness(item.words, number)
        yield Evidence(
            other=other,
            text=0.0 if likeness is None else _scaled(likeness.ratio, _CHANCE_LIKENESS, 1.0),
            cases=said,
            program=programs.get(number, 0.0),
            name=_NAME if _same_name(item, other) else 0.0,
            likeness=likeness,
            shared=len(shared),
            bits=sum(case.bits for case in shared),
        )


def _programs(item: Item, index: BenchmarkIndex) -> dict[int, float]:
    """By the numbers of problems whose reference is one here, or a function in one."""
    found: dict[int, float] = {}
    for solutions, most in ((item.functions, _FUNCTION), (item.solutions, 1.0)):
        for solution, nodes in solutions.items():
            for number in index.by_solution(solution):
                found[number] = max(found.get(number, 0.0), min(nodes / MIN_NODES, most))
    return found


def _case_evidence(item: Item, other: Item, shared: list[FlatCase]) -> float:
    """By what the shared cases say, less where they are a small part of both problems' or a single one."""
    if not shared:
        return 0.0
    part = min(len(shared) / min(len(other.cases), max(len(item.cases), _FEW + 1)), 1.0)
    enough = HALF_BITS + (ALL_BITS - HALF_BITS) * _scaled(part, _HALF, 1.0)
    said = sum(case.bits for case in shared)
    found = _scaled(said, _CHANCE_BITS, enough) * min(part / _HALF, 1.0)
    return max(found * (1.0 if len(shared) >= _FEW else _HALF), _most_evidence(item, other, shared))


def _most_evidence(item: Item, other: Item, shared: list[FlatCase]) -> float:
    """By shared cases that are most of the problem's, however little each says. Equal cases count once."""
    different = {case.wholes: case.bits for case in shared}
    if len(different) < _SEVERAL:
        return 0.0
    own, theirs = (len(different) / len({case.wholes for case in each.cases}) for each in (item, other))
    said = sum(different.values())
    by_own = _scaled(said, _CHANCE_BITS, OWN_BITS) * _scaled(own, _HALF, _MOST)
    by_both = _scaled(said, 0.0, BOTH_BITS) * _scaled(min(own, theirs), _HALF, _MOST)
    return max(by_own, by_both)


def _same_name(item: Item, other: Item) -> bool:
    name = item.tests.name.casefold()
    return len(name) >= _LONG_NAME and name == other.tests.name.casefold()


def _scaled(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)
