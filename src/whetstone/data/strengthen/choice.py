"""Which new tests are kept: those that refuse what the tests accept and should not, as few as do it.

Programs are held against all candidates in several orders. In each, the first candidate that refuses a
program is noted, and the orders begin with what refused most so far: so few candidates refuse most programs,
and each program is refused by more than one, which helps against wrong programs that are not here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import Limits, Problem, Program
from whetstone.data.strengthen.drawing import Draw
from whetstone.data.strengthen.edge_features import spots_of
from whetstone.data.strengthen.forms import LabelledInput, TestForm
from whetstone.data.validate.runs import Runs
from whetstone.judge import Judgement, Verdict

# Refusals that do not hang on the time limit.
_BY_ITSELF = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT)
# Tests that refuse a fault, where there are so many.
_TIMES = 3
# Candidates that are judged together.
_AT_ONCE = 40
_MOST_HELD_UP = 3


class Fault(Struct, frozen=True):
    """A program that the tests accept and should not. ``limits`` are those it is run under here; with
    ``confirm``, one that is too slow is refused for that."""

    name: str
    program: Program
    limits: Limits
    confirm: bool


class Chosen(Struct, frozen=True):
    """The candidates kept, what each is for, the names of the faults that they refuse, and what they cost."""

    kept: list[LabelledInput]
    why: list[str]
    refused: list[str]
    spots: int
    cpu_s: float


class Chooser:
    """Chooses among candidates; ``costs`` are their CPU seconds."""

    def __init__(
        self,
        reads: TestForm,
        cases: Sequence[LabelledInput],
        costs: Sequence[float],
        given: Sequence[tuple[list[Any], Any]],
        runs: Runs,
        draw: Draw,
    ) -> None:
        """``given`` are the inputs that are there, with their answers."""
        self._reads, self._cases, self._costs, self._given = reads, list(cases), list(costs), given
        self._own = len(cases)
        """Candidates that may be kept for their properties; those taken from another chooser may not."""
        self._runs, self._draw = runs, draw
        self._refusals: dict[str, list[int]] = {}
        self._hits = Counter[int]()

    def hold_against(self, faults: Sequence[Fault], rounds: int, *, wrong_only: bool = False) -> None:
        """Find for each fault which candidates refuse it, up to one in each round; ``wrong_only``: by a wrong
        answer, and not by a crash."""
        self._counts = (Verdict.WRONG_ANSWER,) if wrong_only else _BY_ITSELF
        left = list(faults)
        for turn in range(rounds):
            still: list[Fault] = []
            for fault in left:
                found = self._first_refusal(fault, self._order(turn))
                if found is not None:
                    self._refusals.setdefault(fault.name, []).append(found)
                    self._hits[found] += 1
                    still.append(fault)
            left = still

    def refuses(self, name: str, numbers: Sequence[int]) -> None:
        """Note a fault that is known to be refused by these candidates."""
        self._refusals[name] = list(numbers)
        self._hits.update(numbers)

    def unrefused(self, faults: Sequence[Fault]) -> list[Fault]:
        """The faults that no candidate is known to refuse."""
        return [fault for fault in faults if fault.name not in self._refusals]

    def take(self, other: Chooser) -> None:
        """Take over the candidates of another chooser that refuse something, and what they refuse."""
        numbers: dict[int, int] = {}
        for name, found in other._refusals.items():
            for number in found:
                if number not in numbers:
                    numbers[number] = len(self._cases)
                    self._cases.append(other._cases[number])
                    self._costs.append(other._costs[number])
            self.refuses(name, [numbers[number] for number in found])

    def _order(self, turn: int) -> list[int]:
        """The order of a round: an even one begins with what refused most, an odd one anywhere."""
        order = self._draw.shuffled(range(len(self._cases)))
        if turn % 2 == 0:
            order.sort(key=lambda number: (-self._hits[number], self._costs[number]))
        return order

    def _first_refusal(self, fault: Fault, order: list[int]) -> int | None:
        already = set(self._refusals.get(fault.name, ()))
        order = [number for number in order if number not in already]
        at = held_up = 0
        while at < len(order) and held_up < _MOST_HELD_UP:
            part = self._part(order[at : at + _AT_ONCE], fault.limits.cpu_s / 2)
            judgement = self._judged(fault, part)
            if judgement.verdict is Verdict.JUDGE_ERROR:
                return None
            first = next((case for case in judgement.cases if case.verdict is not Verdict.ACCEPTED), None)
            if first is None:
                at += len(part)
                continue
            if first.verdict in self._counts or fault.confirm:
                return part[first.index]
            at += first.index + 1  # too slow under a shorter limit than the problem's: that is no refusal yet
            held_up += 1
        return None

    def _part(self, numbers: list[int], cpu_s: float) -> list[int]:
        """The first of them, as many as the reference does in this time: one limit may hold for all."""
        for at, spent in enumerate(itertools.accumulate(self._costs[number] for number in numbers)):
            if at and spent > cpu_s:
                return numbers[:at]
        return numbers

    def _judged(self, fault: Fault, numbers: Sequence[int]) -> Judgement:
        problem = self._reads.alone([self._cases[number] for number in numbers])
        hurried: Problem = msgspec.structs.replace(problem, limits=fault.limits)
        return self._runs.run(
            hurried,
            fault.program,
            stop_at_first_failure=True,
            confirm_time_limit=fault.confirm,
            fork_per_case=False,
        )

    def chosen(self, most: int, budget_s: float) -> Chosen:
        """The candidates to keep: by how many faults they refuse that no other kept one does, then by new
        spots, at most ``most``, within ``budget_s`` CPU seconds together."""
        kept: list[int] = []
        why: dict[int, str] = {}
        spent = 0.0
        for wanted in range(1, _TIMES + 1):
            missing = {name: wanted - len(set(found) & set(kept)) for name, found in self._refusals.items()}
            missing = {
                name: n for name, n in missing.items() if n > 0 and len(self._refusals[name]) >= wanted
            }
            while missing:
                gains = Counter(
                    number for name in missing for number in self._refusals[name] if number not in kept
                )
                fitting = [n for n in gains if spent + self._costs[n] <= budget_s]
                if not fitting or len(kept) >= most:
                    break
                best = max(fitting, key=lambda n: (gains[n], -self._costs[n], -n))
                names = [name for name in missing if best in self._refusals[name]]
                kept.append(best)
                why[best] = f"refuses {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
                spent += self._costs[best]
                for name in names:
                    missing[name] -= 1
                missing = {name: n for name, n in missing.items() if n > 0}
        spots = self._add_spots(kept, why, most, budget_s - spent)
        refused = [name for name, found in self._refusals.items() if set(found) & set(kept)]
        cost = sum(self._costs[number] for number in kept)
        cases = [self._cases[number] for number in kept]
        return Chosen(cases, [why[number] for number in kept], refused, spots, cost)

    def _add_spots(self, kept: list[int], why: dict[int, str], most: int, budget_s: float) -> int:
        """Keep candidates with spots that no test has, the most of them first; returns how many spots."""
        known = {spot for arguments, answer in self._given for spot in spots_of(arguments, answer)}
        new = {
            number: spots_of(case.arguments, case.answer) - known for number, case in enumerate(self._cases)
        }
        count = len(frozenset[str]().union(*(new[number] for number in kept)))
        seen = {spot for number in kept for spot in new[number]}
        while len(kept) < most:
            left = [n for n in range(self._own) if n not in kept and self._costs[n] <= budget_s]
            fitting = [n for n in left if new[n] - seen]
            if not fitting:
                break
            best = max(fitting, key=lambda n: (len(new[n] - seen), -self._costs[n], -n))
            fresh = sorted(new[best] - seen, key=lambda spot: (len(spot), spot))
            kept.append(best)
            why[best] = f"an input or answer as no test had: {fresh[0]}"
            budget_s -= self._costs[best]
            seen |= new[best]
            count += len(fresh)
        self._add_combinations(kept, why, most, budget_s)
        return count

    def _add_combinations(self, kept: list[int], why: dict[int, str], most: int, budget_s: float) -> None:
        """Fill up with candidates of which two properties come together as in no test."""
        known = {pair for arguments, answer in self._given for pair in _pairs(arguments, answer)}
        known |= {pair for n in kept for pair in _pairs(self._cases[n].arguments, self._cases[n].answer)}
        cases = enumerate(self._cases[: self._own])
        pairs = {n: _pairs(case.arguments, case.answer) for n, case in cases if n not in kept}
        while len(kept) < most:
            fitting = [n for n in pairs if self._costs[n] <= budget_s]
            best = max(fitting, key=lambda n: (len(pairs[n] - known), -self._costs[n], -n), default=None)
            if best is None or not (fresh := pairs.pop(best) - known):
                return
            kept.append(best)
            shortest = min(fresh, key=lambda pair: (sum(map(len, pair)), sorted(pair)))
            why[best] = f"an input or answer as no test had: {' with '.join(sorted(shortest))}"
            budget_s -= self._costs[best]
            known |= fresh


def _pairs(arguments: Sequence[Any], answer: Any) -> set[frozenset[str]]:
    """Any two properties of an input and its answer."""
    spots = sorted(spot for spot in spots_of(arguments, answer) if "->" not in spot)
    return {frozenset(pair) for pair in itertools.combinations(spots, 2)}
