"""Which cases of a problem are run: all of them, or a seeded subset."""

from __future__ import annotations

import random


def chosen_cases(problem_id: str, count: int, max_cases: int | None, seed: int) -> list[int]:
    """The numbers of the cases to run, in the problem's order.

    A function of its arguments alone, so that all programs for a problem meet the same cases as long as
    the seed stays. Every case is as likely as any other. ``max_cases`` None means all.
    """
    numbers = list(range(count))
    if max_cases is None or max_cases >= count:
        return numbers
    # Only `random()` is promised to give the same numbers in every version of Python.
    draw = random.Random(f"{seed}:{problem_id}")
    for at in range(max_cases):
        other = at + int(draw.random() * (count - at))
        numbers[at], numbers[other] = numbers[other], numbers[at]
    return sorted(numbers[:max_cases])
