"""Select problems of a set and tests of a problem, and order them.

All draws are by seed and problem id. So the same set and options give the same problems and tests.
"""

from __future__ import annotations

import random
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import IO, Annotated, Any, Literal, cast

import msgspec
from pydantic import AfterValidator, BeforeValidator

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.problem import AssertTests, CallTests, CaseGroup, Problem, case_count
from whetstone.core.settings import Natural, NonEmpty, Section, Share, checked
from whetstone.data.decisions import ProblemDecision
from whetstone.data.pass_rate import rate_of
from whetstone.data.similarity.words import hash64

CaseRule = Literal["longest", "shortest", "random"]


def cut_cases(problem: Problem, max_cases: int, rule: CaseRule, seed: int) -> Problem:
    """Return the problem with at most ``max_cases`` of its cases, in their order; 0 keeps all.

    DeepCoder keeps the 15 longest inputs, Code-R1 the 8 shortest, Archer a random 16. Cases that score
    together stay groups: each group keeps at least one case as long as there is room for one each.

    Returns the problem itself if nothing is cut. A ``check`` function or a test class is one case. Sizes are
    those of the inputs, in characters. ``random`` depends on the seed and the problem's id.
    """
    count = case_count(problem)
    if not max_cases or count <= max_cases:
        return problem
    ranked = _ranked(problem, rule, seed)
    place = {number: rank for rank, number in enumerate(ranked)}
    groups = sorted(problem.scoring.groups, key=lambda group: -group.weight)
    # The best case of each group: without one of its cases, a group could not score at all.
    firsts = dict.fromkeys(min(group.cases, key=place.__getitem__) for group in groups)
    first_of_groups = list(firsts)[:max_cases]
    rest = [number for number in ranked if number not in set(first_of_groups)]
    chosen = sorted([*first_of_groups, *rest][:max_cases])
    return _with_cases(problem, chosen)


def _ranked(problem: Problem, rule: CaseRule, seed: int) -> list[int]:
    """Return the numbers of all cases, best first."""
    count = case_count(problem)
    if rule == "random":
        # Only `random()` gives the same numbers in every version of Python.
        draw = random.Random(f"{seed}:{problem.id}")
        keys = [draw.random() for _ in range(count)]
        return sorted(range(count), key=keys.__getitem__)
    sizes = _sizes(problem)
    if rule == "shortest":
        return sorted(range(count), key=lambda number: (sizes[number], number))
    return sorted(range(count), key=lambda number: (-sizes[number], number))


def _sizes(problem: Problem) -> list[int]:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return [len(line) for line in tests.asserts or [""]]
    if isinstance(tests, CallTests):
        return [len(msgspec.json.encode([case.args, case.kwargs])) for case in tests.cases]
    return [len(case.input) for case in tests.cases]


def _with_cases(problem: Problem, chosen: list[int]) -> Problem:
    tests: Any = problem.tests
    if isinstance(tests, AssertTests):
        asserts = tests.asserts or []
        cut = msgspec.structs.replace(tests, asserts=[asserts[number] for number in chosen])
    else:
        cut = msgspec.structs.replace(tests, cases=[tests.cases[number] for number in chosen])
    numbers = {old: new for new, old in enumerate(chosen)}
    groups = [
        CaseGroup([numbers[case] for case in group.cases if case in numbers], group.weight)
        for group in problem.scoring.groups
        if any(case in numbers for case in group.cases)
    ]
    scoring = msgspec.structs.replace(problem.scoring, groups=groups)
    return msgspec.structs.replace(problem, tests=cut, scoring=scoring)


STEP = "select"
KINDS = ("stdin", "call", "assert", "interactive", "none")

Order = Literal["as-is", "difficulty", "length"]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UserError(f"no kind of test `{kind}`{did_you_mean(kind, KINDS)} ({', '.join(KINDS)})")


def _parse_bounds(value: Any) -> Any:
    """Split ``0.1..0.9`` of a command line. A file has a pair of numbers."""
    text = value[0] if isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == 1 else value
    return text.split("..") if isinstance(text, str) else value


def _check_order(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    if bounds is not None and bounds[0] > bounds[1]:
        raise ValueError("give the lower bound first, such as 0.1..0.9")
    return bounds


Kind = Annotated[str, checked(_check_kind)]
PassRateBounds = Annotated[
    tuple[Share, Share] | None,
    BeforeValidator(_parse_bounds),
    AfterValidator(_check_order),
    Flag("measured by `whetstone data difficulty`, such as 0.1..0.9", "LO..HI"),
]


class Selection(Section):
    """What to select. Zero, None and empty are no bound. ``pass_rate`` bounds the share of right replies that
    ``whetstone data difficulty`` measured; both ends are included.

    ``order``: ``difficulty`` puts problems that are solved most often first, and unmeasured ones last.
    ``length`` puts the shortest statements first.
    """

    max_tests: Annotated[Natural, Flag("keep at most N tests of a problem; 0 keeps all", "N")] = 0
    tests: Annotated[CaseRule, Flag("which tests to keep, by their input")] = "longest"
    min_tests: Annotated[Natural, Flag("drop problems with fewer tests", "N")] = 0
    kinds: Annotated[tuple[Kind, ...], Flag(f"kinds of tests, of {', '.join(KINDS)}", "KIND,…")] = ()
    languages: Annotated[tuple[NonEmpty, ...], Flag("languages, such as python,cpp", "NAME,…")] = ()
    sources: Annotated[tuple[NonEmpty, ...], Flag("sources of the problems", "NAME,…")] = ()
    pass_rate: PassRateBounds = None
    max_problems: Annotated[Natural, Flag("draw at most N problems; 0 takes all", "N")] = 0
    order: Annotated[
        Order,
        Flag("difficulty: solved most often first; length: shortest statement first (default: as-is)"),
    ] = "as-is"
    seed: Annotated[int, Flag("of all draws", "N")] = 0


def select(problems: Iterator[Problem], selection: Selection) -> Iterator[Problem | ProblemDecision]:
    """Filter problems, cut tests, draw ``max_problems`` and order the rest: a step.

    If nothing is drawn or ordered, problems are passed on one by one. Otherwise they wait in a temporary
    file.
    """
    passing = _filtered(problems, selection)
    if not selection.max_problems and selection.order == "as-is":
        yield from passing
        return
    with _WaitingProblems() as waiting:
        for result in passing:
            if isinstance(result, ProblemDecision):
                yield result
            else:
                waiting.add(result, _sort_key(result, selection.order))
        chosen = waiting.draw(selection.max_problems, selection.seed)
        # Every problem that the step read must be dropped with a decision.
        for number in sorted(set(range(len(waiting))) - set(chosen)):
            detail = f"{selection.max_problems} of {len(waiting)} were drawn with seed {selection.seed}"
            problem = waiting.read(number)
            yield ProblemDecision(problem.id, STEP, "drop", "not_drawn", detail, problem.source)
        for number in waiting.ordered(chosen):
            yield waiting.read(number)


def _filtered(problems: Iterator[Problem], selection: Selection) -> Iterator[Problem | ProblemDecision]:
    for problem in problems:
        refusal = _drop_reason(problem, selection)
        if refusal is not None:
            yield ProblemDecision(problem.id, STEP, "drop", *refusal, problem.source)
            continue
        cut = cut_cases(problem, selection.max_tests, selection.tests, selection.seed)
        # The same object means that nothing was cut.
        if cut is not problem:
            detail = f"{case_count(cut)} of {case_count(problem)} tests, {selection.tests}"
            yield ProblemDecision(problem.id, STEP, "mark", "tests_cut", detail, problem.source)
        yield cut


def _drop_reason(problem: Problem, selection: Selection) -> tuple[str, str] | None:
    """Return the reason to drop a problem and its detail; None keeps it."""
    kind = str(problem.tests.__struct_config__.tag)
    if selection.kinds and kind not in selection.kinds:
        return "kind", kind
    if selection.languages and problem.language not in selection.languages:
        return "language", problem.language
    if selection.sources and problem.source not in selection.sources:
        return "source", problem.source
    if case_count(problem) < selection.min_tests:
        return "too_few_tests", f"{case_count(problem)} tests; {selection.min_tests} are required"
    if selection.pass_rate is None:
        return None
    rate = rate_of(problem)
    if rate is None or not rate.n:
        return "not_measured", "no pass rate; `whetstone data difficulty` measures it"
    low, high = selection.pass_rate
    if not low <= rate.passed / rate.n <= high:
        return "pass_rate_outside", f"{rate.passed} of {rate.n} right"
    return None


def _sort_key(problem: Problem, order: Order) -> float:
    if order == "length":
        return len(problem.statement)
    rate = rate_of(problem) if order == "difficulty" else None
    # The small number puts a measured rate of zero before unmeasured problems.
    return 0.0 if rate is None or not rate.n else -rate.passed / rate.n - 1e-9


class _WaitingProblems:
    """Problems in a temporary file, until it is known which are selected and in which order."""

    def __enter__(self) -> _WaitingProblems:
        self._file: IO[bytes] = tempfile.TemporaryFile()
        # Arrays have a few bytes for a problem. The problems themselves may not fit in memory.
        self._starts = array("q", [0])
        self._keys = array("d")
        self._ids: list[str] = []
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, problem: Problem, key: float) -> None:
        self._starts.append(self._starts[-1] + self._file.write(msgspec.json.encode(problem)))
        self._keys.append(key)
        self._ids.append(problem.id)

    def read(self, number: int) -> Problem:
        self._file.seek(self._starts[number])
        return msgspec.json.decode(
            self._file.read(self._starts[number + 1] - self._starts[number]), type=Problem
        )

    def draw(self, count: int, seed: int) -> list[int]:
        """Return the numbers of at most ``count`` problems, in the set's order; 0 takes all."""
        numbers = list(range(len(self)))
        if 0 < count < len(self):
            # By a hash of the id: a larger set keeps most of the draw.
            ranked = sorted(numbers, key=lambda number: hash64(f"draw {seed} {self._ids[number]}"))
            return sorted(ranked[:count])
        return numbers

    def ordered(self, chosen: list[int]) -> Sequence[int]:
        return sorted(chosen, key=self._keys.__getitem__)
