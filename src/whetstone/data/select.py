"""Which problems of a set, which of their tests, and in which order.

Everything that draws is seeded and goes by the problem's id, so that the same set and options give the
same problems with the same tests, whatever else is in the set.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Literal

import msgspec
from msgspec import Struct

from whetstone.data.case_choice import CaseRule, cut_cases
from whetstone.data.decisions import Decision
from whetstone.data.pass_rate import rate_of
from whetstone.data.similarity.words import hash64
from whetstone.errors import UserError, did_you_mean
from whetstone.problem import Problem, case_count

STEP = "select"
KINDS = ("stdin", "call", "assert", "interactive")

Order = Literal["as-is", "difficulty", "length", "source-mix", "shuffle"]
ORDERS: tuple[Order, ...] = ("as-is", "difficulty", "length", "source-mix", "shuffle")


class Selection(Struct, frozen=True):
    """What to take. Zero, None and empty mean no bound. ``pass_rate`` bounds the share of right replies that
    ``whetstone data difficulty`` measured, both ends included.

    ``order``: ``difficulty`` puts what is solved most often first, and what was not measured last;
    ``length`` the shortest statements; ``source-mix`` spreads every source evenly over the set. Raises
    UserError for what cannot be.
    """

    max_tests: int = 0
    tests: CaseRule = "longest"
    min_tests: int = 0
    kinds: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    pass_rate: tuple[float, float] | None = None
    max_problems: int = 0
    order: Order = "as-is"
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.max_tests, self.min_tests, self.max_problems) < 0:
            raise UserError("--max-tests, --min-tests and --max-problems are counts of at least 0")
        for kind in self.kinds:
            if kind not in KINDS:
                raise UserError(
                    f"--kinds: no kind of test `{kind}`{did_you_mean(kind, KINDS)} ({', '.join(KINDS)})"
                )
        if self.pass_rate is not None and not 0 <= self.pass_rate[0] <= self.pass_rate[1] <= 1:
            raise UserError("--pass-rate: give bounds from 0 to 1, such as 0.1..0.9")


def select(problems: Iterator[Problem], selection: Selection) -> Iterator[Problem | Decision]:
    """The step: filter, cut tests, draw ``max_problems``, put in order.

    Where nothing is drawn or ordered, problems pass one by one; else they wait in a temporary file.
    """
    passing = _filtered(problems, selection)
    if not selection.max_problems and selection.order == "as-is":
        yield from passing
        return
    with _Waiting() as waiting:
        for result in passing:
            if isinstance(result, Decision):
                yield result
            else:
                waiting.add(result, _key(result, selection.order))
        chosen = waiting.draw(selection.max_problems, selection.seed)
        for number in sorted(set(range(len(waiting))) - set(chosen)):
            detail = f"{selection.max_problems} of {len(waiting)} were drawn with seed {selection.seed}"
            problem = waiting.read(number)
            yield Decision(problem.id, STEP, "drop", "not_drawn", detail, problem.source)
        for number in waiting.in_order(chosen, selection.order, selection.seed):
            yield waiting.read(number)


def _filtered(problems: Iterator[Problem], selection: Selection) -> Iterator[Problem | Decision]:
    for problem in problems:
        refusal = _refusal(problem, selection)
        if refusal is not None:
            yield Decision(problem.id, STEP, "drop", *refusal, problem.source)
            continue
        cut = cut_cases(problem, selection.max_tests, selection.tests, selection.seed)
        if cut is not problem:
            detail = f"{case_count(cut)} of {case_count(problem)} tests, {selection.tests}"
            yield Decision(problem.id, STEP, "mark", "tests_cut", detail, problem.source)
        yield cut


def _refusal(problem: Problem, selection: Selection) -> tuple[str, str] | None:
    """The reason to drop a problem and its detail, if there is one."""
    kind = str(problem.tests.__struct_config__.tag)
    if selection.kinds and kind not in selection.kinds:
        return "kind", kind
    if selection.languages and problem.language not in selection.languages:
        return "language", problem.language
    if selection.sources and problem.source not in selection.sources:
        return "source", problem.source
    if case_count(problem) < selection.min_tests:
        return "too_few_tests", f"{case_count(problem)} tests; {selection.min_tests} are asked for"
    if selection.pass_rate is None:
        return None
    rate = rate_of(problem)
    if rate is None or not rate.n:
        return "not_measured", "no pass rate; `whetstone data difficulty` measures it"
    low, high = selection.pass_rate
    if not low <= rate.passed / rate.n <= high:
        return "pass_rate_outside", f"{rate.passed} of {rate.n} right"
    return None


def _key(problem: Problem, order: Order) -> float:
    if order == "length":
        return len(problem.statement)
    rate = rate_of(problem) if order == "difficulty" else None
    return 0.0 if rate is None or not rate.n else -rate.passed / rate.n - 1e-9


class _Waiting:
    """Problems in a temporary file until it is known which are taken and in which order."""

    def __enter__(self) -> _Waiting:
        self._file: IO[bytes] = tempfile.TemporaryFile()
        self._starts = array("q", [0])
        self._keys = array("d")
        self._ids: list[str] = []
        self._sources: list[str] = []
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, problem: Problem, key: float) -> None:
        self._starts.append(self._starts[-1] + self._file.write(msgspec.json.encode(problem)))
        self._keys.append(key)
        self._ids.append(problem.id)
        self._sources.append(problem.source)

    def read(self, number: int) -> Problem:
        self._file.seek(self._starts[number])
        return msgspec.json.decode(
            self._file.read(self._starts[number + 1] - self._starts[number]), type=Problem
        )

    def draw(self, count: int, seed: int) -> list[int]:
        """The numbers of at most ``count`` problems, in the set's order; 0 takes all."""
        numbers = list(range(len(self)))
        if 0 < count < len(self):
            return sorted(self._drawn(numbers, f"draw {seed}")[:count])
        return numbers

    def in_order(self, chosen: list[int], order: Order, seed: int) -> Sequence[int]:
        if order == "shuffle":
            return self._drawn(chosen, f"order {seed}")
        if order == "source-mix":
            return self._mixed(chosen)
        return sorted(chosen, key=self._keys.__getitem__)

    def _drawn(self, numbers: list[int], seed: str) -> list[int]:
        return sorted(numbers, key=lambda number: hash64(f"{seed} {self._ids[number]}"))

    def _mixed(self, chosen: list[int]) -> list[int]:
        """Every source spread evenly: its k-th of m problems stands at the share (k - 1/2) / m."""
        sizes = Counter(self._sources[number] for number in chosen)
        seen: Counter[str] = Counter()
        places: dict[int, float] = {}
        for number in chosen:
            source = self._sources[number]
            places[number] = (seen[source] + 0.5) / sizes[source]
            seen[source] += 1
        return sorted(chosen, key=places.__getitem__)
