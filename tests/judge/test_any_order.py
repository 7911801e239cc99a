"""A search for values that the comparison in any order accepts wrongly, rejects wrongly, or is slow on."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import pytest

from whetstone.core.problem import Compare
from whetstone.judge.answers.any_order import ValueComparison
from whetstone.judge.answers.equality import Tolerance, equal
from whetstone.judge.answers.inert import read_one
from whetstone.judge.values import encode

Order = Literal["any", "inner", "all"]
ORDERS: tuple[Order, ...] = ("any", "inner", "all")
LEAVES: list[Any] = [
    *(0, 1, 2, True, 1.0, 0.3, 0.1 + 0.2, 1.0000001, 2.00001, -0.0, 10**30, float("inf"), float("nan")),
    *("a", "A", "1", "", "straße", "STRASSE", None, [], {}, (1,), {"k": [1, 2]}, 1 + 0j, b"a", {1, 2}),
]


def crossed(value: object, expected: object) -> Any:
    """Return a value as the judge reads it from a program."""
    return read_one(encode(value), expected)


def drawn(rng: random.Random, depth: int = 2) -> Any:
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(LEAVES)
    return [drawn(rng, depth - 1) for _ in range(rng.randrange(4))]


def shuffled(rng: random.Random, value: Any, order: Order) -> Any:
    """Return an equal value with lists in another order."""
    if not isinstance(value, list):
        return value
    rows: list[Any] = list(value)
    if order != "any":
        rows = [rng.sample(row, len(row)) if isinstance(row, list) else row for row in rows]
    return rng.sample(rows, len(rows)) if order != "inner" else rows


def matches(found: Any, expected: Any, order: Order, allowed: Tolerance, depth: int = 0) -> bool:
    """Return whether some pairing of items is equal. It tries all pairings."""
    is_list = isinstance(found, (list, tuple, deque, range)) and isinstance(expected, (list, tuple))
    if not is_list or depth > 1:
        return equal(found, expected, allowed)
    left, right = list(found), list(expected)
    if len(left) != len(right):
        return False
    if depth not in {"any": {0}, "inner": {1}, "all": {0, 1}}[order]:
        return all(matches(a, b, order, allowed, depth + 1) for a, b in zip(left, right, strict=True))
    if not left:
        return True
    return any(
        matches(left[0], one, order, allowed, depth + 1)
        and matches(left[1:], right[:place] + right[place + 1 :], order, allowed, depth)
        for place, one in enumerate(right)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_no_value_is_accepted_that_no_pairing_matches_and_no_permutation_is_rejected(order: Order) -> None:
    rng = random.Random(order)
    accepted = 0
    for _ in range(3000):
        bound = rng.choice([None, 1e-6, 0.5, 2.0])
        compare = Compare("values", abs=bound, order=order)
        allowed = Tolerance(bound or 0.0, 0.0, integers=bound is not None)
        rule, expected = ValueComparison(compare), drawn(rng)
        same = crossed(shuffled(rng, expected, order), expected)
        assert rule(same, expected, []), (expected, same, compare)
        other = crossed(rng.choice([drawn(rng), shuffled(rng, [*_items(expected)], order)]), expected)
        if rule(other, expected, []):
            accepted += 1
            assert matches(other, expected, order, allowed), (expected, other, compare)
    assert accepted > 100


def _items(value: Any) -> list[Any]:
    items: list[Any] = list(value) if isinstance(value, list) else [value]
    return [*items[:-1], 1] if items else [0]


def test_errors_within_the_tolerance_are_accepted_in_any_order() -> None:
    rng = random.Random(1)
    for _ in range(500):
        expected: list[Any] = [
            [rng.randrange(9) / 2, rng.choice("ab"), rng.uniform(0, 9)] for _ in range(rng.randrange(9))
        ]
        off = [[one[0] + rng.uniform(-1, 1) * 1e-6, one[1], one[2]] for one in expected]
        rule = ValueComparison(Compare("values", abs=1e-6, order="any"))
        assert rule(crossed(rng.sample(off, len(off)), expected), expected, [])


HOSTILE: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "numbers that are all close": lambda n: ([1 + k * 1e-9 for k in range(n)], [1.0] * n),
    "floats in place of rows": lambda n: ([0.5] * n, [[k] for k in range(n)]),
    "hashes that collide": lambda n: ([k * (2**61 - 1) for k in range(n)], list(range(n))),
    "unhashable rows": lambda n: ([[{"k": []}, [k % 3]] for k in range(n)], [[{"k": []}, [1]]] * n),
    "texts with a common start": lambda n: (["x" * 64 + str(k) for k in range(n)], ["x"] * n),
    "long ranges": lambda n: ([range(10 * n)] * n, [[0]] * n),
    "sets of numbers": lambda n: ([{k, -k} for k in range(n)], [[k] for k in range(n)]),
    "deep lists": lambda n: ([_deep(90) for _ in range(n // 90)], [_deep(90)] * (n // 90 + 1)),
}


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("order", ORDERS)
def test_twice_the_items_cost_about_twice_the_steps(name: str, order: Order) -> None:
    def steps(count: int) -> int:
        found, expected = HOSTILE[name](count)
        found = crossed(found, expected)
        rule = ValueComparison(Compare("values", abs=1e-6, order=order))
        taken = 0

        def count_step(*_: object) -> None:
            nonlocal taken
            taken += 1

        sys.setprofile(count_step)
        try:
            rule(found, expected, [])
        finally:
            sys.setprofile(None)
        return taken

    few, many = steps(2000), steps(4000)
    assert many <= 2.3 * few + 1000
    assert many <= 600 * 4000
