"""Which new tests are kept: those that reject programs which the tests accept and should not, and then those
of kinds that no test has."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import Limits, Program
from whetstone.data.strengthen.features import features_of
from whetstone.data.strengthen.forms import LabelledInput, TestForm
from whetstone.data.validate.runs import Runs
from whetstone.judge import Verdict

# Rejections that do not depend on the time limit.
_WITHOUT_CLOCK = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT)
# Tests that reject a fault, if there are so many.
_TIMES = 2
# Candidates that are judged together.
_AT_ONCE = 40
_MOST_SLOW = 3
# The part of the new tests that is chosen by what it rejects; the rest are of new kinds.
_DETECTING_SHARE = 0.7


class Fault(Struct, frozen=True):
    """A program that the tests accept and should not. limits: those it is run under here. confirm: whether
    it is rejected if it is too slow."""

    name: str
    program: Program
    limits: Limits
    confirm: bool


class Candidate(Struct, frozen=True):
    """A labelled input. cpu_s: of the slowest reference. wide: of a kind that no given input shows; it is
    kept only if it rejects a fault."""

    case: LabelledInput
    cpu_s: float
    wide: bool = False


class Choice(Struct, frozen=True):
    """The candidates to keep, the reason for each, and the names of the faults that they reject."""

    kept: list[Candidate]
    why: list[str]
    rejected: list[str]


def rejections(fault: Fault, candidates: Sequence[Candidate], form: TestForm, runs: Runs) -> set[int]:
    """Return the numbers of the candidates that reject a program for more than its time."""
    found = set[int]()
    for start in range(0, len(candidates), _AT_ONCE):
        problem = form.alone([each.case for each in candidates[start : start + _AT_ONCE]])
        judgement = runs.run(
            msgspec.structs.replace(problem, limits=fault.limits),
            fault.program,
            stop_at_first_failure=False,
            confirm_time_limit=False,
            fork_per_case=False,
        )
        found |= {start + case.index for case in judgement.cases if case.verdict in _WITHOUT_CLOCK}
        if any(case.verdict is Verdict.TIME_LIMIT for case in judgement.cases):
            break  # every further case could take as long
    return found


class Chooser:
    """Chooses among candidates."""

    def __init__(self, form: TestForm, candidates: Sequence[Candidate], runs: Runs, draw_seed: str) -> None:
        self._form, self._candidates, self._runs = form, list(candidates), runs
        self._random = random.Random(draw_seed)
        self._rejections: dict[str, list[int]] = {}
        self._hits = Counter[int]()
        self._detections: list[set[int]] = []

    def add_rejections(self, faults: Sequence[Fault], rounds: int, *, wide: bool = False) -> list[Fault]:
        """Find candidates that reject each fault, up to one in a round. Returns the faults without any.

        wide: among candidates of new kinds only, and by a wrong answer only: an exception may mean that the
        fault is right to refuse such an input.
        """
        verdicts = (Verdict.WRONG_ANSWER,) if wide else _WITHOUT_CLOCK
        left = list(faults)
        for turn in range(rounds):
            order = self._order(turn, wide=wide)
            still: list[Fault] = []
            for fault in left:
                found = self._first_rejection(fault, order, verdicts)
                if found is not None:
                    self._rejections.setdefault(fault.name, []).append(found)
                    self._hits[found] += 1
                    still.append(fault)
            left = still
        return [fault for fault in faults if fault.name not in self._rejections]

    def add_detections(self, faults: Sequence[Fault]) -> None:
        """Note which candidates reject each of these faults, which the present tests reject too.

        Tests that reject such faults in many ways also reject faults for which there is no mutation operator.
        """
        order = [number for number, each in enumerate(self._candidates) if not each.wide]
        candidates = [self._candidates[number] for number in order]
        for fault in faults:
            found = rejections(fault, candidates, self._form, self._runs)
            self._detections.append({order[at] for at in found})

    def chosen(self, given: Sequence[tuple[list[Any], Any]], most: int, budget_s: float) -> Choice:
        """Return at most ``most`` candidates that take ``budget_s`` CPU seconds together.

        given: the given inputs with their answers.
        """
        why = self._rejecting(most, budget_s)
        self._add_detecting(why, int(most * _DETECTING_SHARE), budget_s - self._spent(why))
        self._add_kinds(why, given, most, budget_s - self._spent(why))
        rejected = [name for name, found in self._rejections.items() if set(found) & set(why)]
        return Choice([self._candidates[number] for number in why], list(why.values()), rejected)

    def _spent(self, why: dict[int, str]) -> float:
        return sum(self._candidates[number].cpu_s for number in why)

    def _add_detecting(self, why: dict[int, str], most: int, budget_s: float) -> None:
        """Add candidates that reject faults which few chosen ones reject: each counts half as much as before
        once it is rejected."""
        worth = [0.5 ** len(found & set(why)) for found in self._detections]
        while len(why) < most:
            gains = Counter[int]()
            for found, value in zip(self._detections, worth, strict=True):
                gains.update(dict.fromkeys(found - set(why), value))
            fitting = [n for n in gains if self._candidates[n].cpu_s <= budget_s]
            if not fitting:
                return
            best = max(fitting, key=lambda n: (gains[n], -self._candidates[n].cpu_s, -n))
            rejected = [at for at, found in enumerate(self._detections) if best in found]
            why[best] = f"rejects {len(rejected)} mutants that other tests reject too"
            budget_s -= self._candidates[best].cpu_s
            for at in rejected:
                worth[at] /= 2

    def _order(self, turn: int, *, wide: bool) -> list[int]:
        """Return the order of a round: an even one begins with what rejected most."""
        order = [number for number, each in enumerate(self._candidates) if each.wide == wide]
        self._random.shuffle(order)
        if turn % 2 == 0:
            order.sort(key=lambda number: (-self._hits[number], self._candidates[number].cpu_s))
        return order

    def _first_rejection(self, fault: Fault, order: list[int], verdicts: Sequence[Verdict]) -> int | None:
        known = set(self._rejections.get(fault.name, ()))
        order = [number for number in order if number not in known]
        at = slow = 0
        while at < len(order) and slow < _MOST_SLOW:
            part = self._part(order[at : at + _AT_ONCE], fault.limits.cpu_s / 2)
            problem = self._form.alone([self._candidates[number].case for number in part])
            judgement = self._runs.run(
                msgspec.structs.replace(problem, limits=fault.limits),
                fault.program,
                stop_at_first_failure=True,
                confirm_time_limit=fault.confirm,
                fork_per_case=False,
            )
            if judgement.verdict is Verdict.JUDGE_ERROR:
                return None
            first = next((case for case in judgement.cases if case.verdict is not Verdict.ACCEPTED), None)
            if first is None:
                at += len(part)
                continue
            if first.verdict in verdicts or fault.confirm:
                return part[first.index]
            at += first.index + 1  # too slow under a shorter limit than the problem's
            slow += 1
        return None

    def _part(self, numbers: list[int], cpu_s: float) -> list[int]:
        """Return as many of the first as the reference does in this time: one limit may hold for all."""
        costs = (self._candidates[number].cpu_s for number in numbers)
        for at, spent in enumerate(itertools.accumulate(costs)):
            if at and spent > cpu_s:
                return numbers[:at]
        return numbers

    def _rejecting(self, most: int, budget_s: float) -> dict[int, str]:
        """Return candidates that reject faults, with what each rejects: those that reject most first."""
        why: dict[int, str] = {}
        spent = 0.0
        for wanted in range(1, _TIMES + 1):
            missing: dict[str, set[int]] = {
                name: set(found)
                for name, found in self._rejections.items()
                if len(found) >= wanted and len(set(found) & set(why)) < wanted
            }
            while missing and len(why) < most:
                gains = Counter[int](
                    number for found in missing.values() for number in found if number not in why
                )
                fitting = [n for n in gains if spent + self._candidates[n].cpu_s <= budget_s]
                if not fitting:
                    break
                *_, negative = max((gains[n], -self._candidates[n].cpu_s, -n) for n in fitting)
                best = -negative
                names = [name for name, found in missing.items() if best in found]
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                why[best] = f"rejects {names[0]}{more}"
                spent += self._candidates[best].cpu_s
                missing = {name: found for name, found in missing.items() if name not in names}
        return why

    def _add_kinds(
        self, why: dict[int, str], given: Sequence[tuple[list[Any], Any]], most: int, budget_s: float
    ) -> None:
        """Add candidates with the most features, then pairs of features, that no test has."""
        cases = [each.case for each in self._candidates]
        features = [features_of(case.arguments, case.answer) for case in cases]
        for size in (1, 2):
            kinds = [set(itertools.combinations(sorted(each), size)) for each in features]
            known = {
                kind
                for arguments, answer in given
                for kind in itertools.combinations(sorted(features_of(arguments, answer)), size)
            }
            known |= {kind for number in why for kind in kinds[number]}
            while len(why) < most:
                left = [
                    n
                    for n, each in enumerate(self._candidates)
                    if n not in why and not each.wide and each.cpu_s <= budget_s and kinds[n] - known
                ]
                if not left:
                    break
                best = max(left, key=lambda n: (len(kinds[n] - known), -self._candidates[n].cpu_s, -n))
                why[best] = f"an input of a new kind: {' with '.join(min(kinds[best] - known))}"
                budget_s -= self._candidates[best].cpu_s
                known |= kinds[best]
