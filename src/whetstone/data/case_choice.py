"""At most so many test cases of a problem: the longest, the shortest, a draw, or the first and the longest.

DeepCoder keeps the 15 longest inputs, Code-R1 the 8 shortest, Archer a random 16. Groups of cases that
score together stay groups: each keeps at least one case as long as there is room for one each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from whetstone.problem import AssertTests, CallTests, CaseGroup, Problem, case_count

CaseRule = Literal["longest", "shortest", "random", "first+longest"]
CASE_RULES: tuple[CaseRule, ...] = ("longest", "shortest", "random", "first+longest")


def cut_cases(problem: Problem, max_cases: int, rule: CaseRule, seed: int) -> Problem:
    """The problem with at most ``max_cases`` of its cases, in their order; 0 keeps all.

    The problem itself where nothing is cut: a ``check`` function or a test class is one case. Sizes are
    those of the inputs, in characters; ``random`` is a function of the seed and the problem's id.
    """
    count = case_count(problem)
    if not max_cases or count <= max_cases:
        return problem
    ranked = _ranked(problem, rule, seed)
    first_of_groups = _group_firsts(problem, ranked)[:max_cases]
    rest = [number for number in ranked if number not in set(first_of_groups)]
    chosen = sorted([*first_of_groups, *rest][:max_cases])
    return _with_cases(problem, chosen)


def _ranked(problem: Problem, rule: CaseRule, seed: int) -> list[int]:
    """The numbers of all cases, the most wanted first."""
    count = case_count(problem)
    if rule == "random":
        # Only `random()` is promised to give the same numbers in every version of Python.
        draw = random.Random(f"{seed}:{problem.id}")
        keys = [draw.random() for _ in range(count)]
        return sorted(range(count), key=keys.__getitem__)
    sizes = _sizes(problem)
    if rule == "shortest":
        return sorted(range(count), key=lambda number: (sizes[number], number))
    longest = sorted(range(count), key=lambda number: (-sizes[number], number))
    if rule == "first+longest":
        return [0, *(number for number in longest if number)]
    return longest


def _sizes(problem: Problem) -> list[int]:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return [len(line) for line in tests.asserts or [""]]
    if isinstance(tests, CallTests):
        return [len(msgspec.json.encode([case.args, case.kwargs])) for case in tests.cases]
    return [len(case.input) for case in tests.cases]


def _group_firsts(problem: Problem, ranked: Sequence[int]) -> list[int]:
    """The most wanted case of each group, the heaviest groups first."""
    place = {number: rank for rank, number in enumerate(ranked)}
    groups = sorted(problem.scoring.groups, key=lambda group: -group.weight)
    firsts = [min(group.cases, key=place.__getitem__) for group in groups]
    return list(dict.fromkeys(firsts))


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
