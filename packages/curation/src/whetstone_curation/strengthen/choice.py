"""The choice of new tests: those that reject wrong programs in many ways, then those of new kinds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from whetstone.data.validate.runs import Runs
from whetstone.judge import Verdict
from whetstone_curation.strengthen.faults import Fault
from whetstone_curation.strengthen.forms import LabelledInput, TestForm

# Rejections that do not depend on the time limit.
_WITHOUT_CLOCK = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT)
# Candidates that are judged together.
_AT_ONCE = 40
# The unit of CPU seconds of candidates.
CPU_STEP_S = 0.01
# CPU seconds that a fault may take on all candidates together, beyond one unit for each.
_FOR_A_FAULT_S = 2.0
# The first rejection of a program that the present tests accept, in first rejections of others.
_ACCEPTED_WORTH = 16.0
# The part of the new tests that is chosen by what it rejects; the rest are of new kinds.
_DETECTING_SHARE = 0.7

# Small sizes are told apart one by one.
_EXACT = 12


class CandidateTest(Struct, frozen=True):
    """A labelled input. cpu_s: of the slowest reference. wide: of a kind that no given input shows; it is
    kept only if it rejects a fault."""

    case: LabelledInput
    cpu_s: float
    wide: bool = False


class Choice(Struct, frozen=True):
    """The candidates to keep, the reason for each, and the names of the faults that they reject."""

    kept: list[CandidateTest]
    why: list[str]
    rejected: list[str]

    def counts(self, tried: int, accepted: Sequence[Fault]) -> tuple[int, int, int]:
        """Return how many programs were tried, rejected before, and are rejected with the new tests.

        accepted: those that the present tests accept.
        """
        before = tried - len(accepted)
        return tried, before, before + sum(fault.name in self.rejected for fault in accepted)


def affordable(candidates: list[CandidateTest]) -> list[CandidateTest]:
    """Return every n-th candidate if the reference is slow, because every fault is run on each of them."""
    slow_s = sum(each.cpu_s - CPU_STEP_S for each in candidates)
    return candidates[:: max(1, math.ceil(slow_s / _FOR_A_FAULT_S))]


def rejections(
    fault: Fault,
    candidates: Sequence[CandidateTest],
    numbers: Sequence[int],
    form: TestForm,
    runs: Runs,
    verdicts: Sequence[Verdict] = _WITHOUT_CLOCK,
) -> set[int]:
    """Return which of the numbered candidates reject a program with one of ``verdicts``."""
    found = set[int]()
    for part in _parts(numbers, candidates, fault.limits.cpu_s / 2):
        problem = form.problem_with([candidates[number].case for number in part])
        judgement = runs.run(
            msgspec.structs.replace(problem, limits=fault.limits),
            fault.program,
            stop_at_first_failure=False,
            confirm_time_limit=fault.confirm,
            fork_per_case=False,
        )
        found |= {part[case.index] for case in judgement.cases if case.verdict in verdicts}
        slow = [part[case.index] for case in judgement.cases if case.verdict is Verdict.TIME_LIMIT]
        if slow:  # every further case could take as long
            return found | {*slow} if fault.confirm else found
    return found


def _parts(numbers: Sequence[int], candidates: Sequence[CandidateTest], cpu_s: float) -> Iterator[list[int]]:
    """Yield the numbers in parts that take a reference at most this time: one limit may hold for all."""
    part, spent = list[int](), 0.0
    for number in numbers:
        if part and (len(part) == _AT_ONCE or spent + candidates[number].cpu_s > cpu_s):
            yield part
            part, spent = [], 0.0
        part.append(number)
        spent += candidates[number].cpu_s
    if part:
        yield part


class Chooser:
    """Chooses among candidates."""

    def __init__(self, candidates: Sequence[CandidateTest], budget_s: float) -> None:
        self._candidates, self._left_s = candidates, budget_s
        self._why: dict[int, str] = {}

    def choose(
        self,
        rejected: Sequence[tuple[Fault, set[int]]],
        given: Sequence[tuple[list[Any], Any]],
        most: int,
    ) -> Choice:
        """Return at most ``most`` candidates that take the budget of CPU seconds together.

        rejected: faults, each with the candidates that reject it. given: the given inputs with their answers.
        """
        self._add_rejecting(rejected, int(most * _DETECTING_SHARE))
        self._add_kinds(given, most)
        names = [fault.name for fault, found in rejected if not found.isdisjoint(self._why)]
        return Choice([self._candidates[number] for number in self._why], list(self._why.values()), names)

    def _add(self, gains: dict[int, float]) -> int | None:
        """Return the candidate with the largest gain that fits into the budget, taken from it."""
        fitting = [n for n in gains if n not in self._why and self._candidates[n].cpu_s <= self._left_s]
        best = max(fitting, key=lambda n: (gains[n], -self._candidates[n].cpu_s, -n), default=None)
        if best is not None:
            self._left_s -= self._candidates[best].cpu_s
        return best

    def _add_rejecting(self, rejected: Sequence[tuple[Fault, set[int]]], most: int) -> None:
        """Add candidates that reject faults which few chosen ones reject.

        Each fault counts half as much once it is rejected. Tests that reject it in several ways also reject
        mistakes for which there is no mutation operator.
        """
        worth = [_ACCEPTED_WORTH if fault.accepted else 1.0 for fault, _ in rejected]
        while len(self._why) < most:
            gains: dict[int, float] = {}
            for (_, found), value in zip(rejected, worth, strict=True):
                gains |= {number: gains.get(number, 0.0) + value for number in found}
            best = self._add(gains)
            if best is None:
                return
            hit = [at for at, (_, found) in enumerate(rejected) if best in found]
            hit.sort(key=lambda at: -worth[at])
            more = f" and {len(hit) - 1} more" if len(hit) > 1 else ""
            self._why[best] = f"rejects {rejected[hit[0]][0].name}{more}"
            for at in hit:
                worth[at] /= 2

    def _add_kinds(self, given: Sequence[tuple[list[Any], Any]], most: int) -> None:
        """Add candidates with the most features, then pairs of features, that no test has."""
        cases = [each.case for each in self._candidates]
        features = [features_of(case.arguments, case.answer) for case in cases]
        seen = [features_of(arguments, answer) for arguments, answer in given]
        for size in (1, 2):
            kinds = [set(itertools.combinations(sorted(each), size)) for each in features]
            known = {kind for each in seen for kind in itertools.combinations(sorted(each), size)}
            known.update(*[kinds[number] for number in self._why])
            while len(self._why) < most:
                usual = (number for number, each in enumerate(self._candidates) if not each.wide)
                best = self._add({n: float(len(new)) for n in usual if (new := kinds[n] - known)})
                if best is None:
                    break
                self._why[best] = f"an input of a new kind: {' with '.join(min(kinds[best] - known))}"
                known |= kinds[best]


def features_of(arguments: Sequence[Any], answer: Any) -> set[str]:
    """Return the features of each argument, of the answer, and of pairs of arguments."""
    found = {f"{at}:{name}" for at, value in enumerate(arguments) for name in _features(value)}
    found |= {f"answer:{name}" for name in _features(answer)}
    for one in range(len(arguments)):
        for other in range(one):
            a, b = _number(arguments[one]), _number(arguments[other])
            found.add(f"{other},{one}:{'equal' if a == b else 'less' if a > b else 'more'}")
    return found


def has_new_empty(arguments: Sequence[Any], seeds: Sequence[Sequence[Any]]) -> bool:
    """Return whether an argument is an empty collection or a blank string, and that of no given input is."""

    def is_empty(value: Any) -> bool:
        if isinstance(value, str):
            return not value.strip()
        return isinstance(value, list | tuple | set | dict) and not value

    return any(
        is_empty(value) and not any(is_empty(given[at]) for given in seeds)
        for at, value in enumerate(arguments)
    )


def _number(value: Any) -> float:
    """Return the size that is compared with those of other arguments."""
    if isinstance(value, int | float):
        return float(value)
    return float(len(value)) if hasattr(value, "__len__") else 0.0


def _bucket(number: float) -> str:
    size = abs(number)
    if size <= _EXACT:
        return f"{math.ceil(size)}"
    return next((f"up to {most}" for most in (20, 50, 100, 1000) if size <= most), "more")


def _features(value: Any) -> Iterator[str]:
    yield type(value).__name__
    if isinstance(value, bool):
        yield str(value)
    elif isinstance(value, int | float):
        yield f"{'-' if value < 0 else '+'}{_bucket(value)}"
        yield f"remainder {value % 2}" if value % 1 == 0 else "a fraction"
    elif isinstance(value, str):
        yield f"length {_bucket(len(value))}"
        yield f"palindrome {value == value[::-1]}"
        yield f"words {_bucket(len(value.split()))}"
        yield f"distinct {len(set(value)) == len(value)}"
        classes = (str.islower, str.isupper, str.isdigit, str.isspace)
        yield "".join(str(int(any(map(each, value)))) for each in classes)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _collection_features(list(cast("Any", value)))
    elif isinstance(value, dict):
        yield f"length {_bucket(len(cast('dict[Any, Any]', value)))}"


def _collection_features(items: list[Any]) -> Iterator[str]:
    yield f"length {_bucket(len(items))}"
    texts = [repr(item) for item in items]
    yield f"distinct {len(set(texts)) == len(texts)}"
    yield f"equal {len(set(texts)) == 1}"
    for item in (items[:1], items[-1:]):
        yield from (f"item {type(each).__name__}" for each in item)
    if items and all(hasattr(item, "__len__") for item in items):
        yield f"longest item {_bucket(max(map(len, items)))}"
    if items and all(isinstance(item, int | float) for item in items):
        yield f"least {'-' if min(items) < 0 else '+'}{_bucket(min(items))}"
        yield f"ascending {items == sorted(items)}, descending {items == sorted(items, reverse=True)}"
        yield f"odd {sum(item % 2 for item in items) > 0}"
