"""The sum of two numbers as a problem in each form of tests, for programs that do more than add."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.core.problem import AssertTests, CallCase, CallTests, Limits, Problem, StdinCase, StdinTests

FORMS = {
    "input": "print(sum(map(int, input().split())) if right else -1)\n",
    "call": "def add(a, b):\n    return a + b if right else -1\n",
    "asserts": "def add(a, b):\n    return a + b if right else -1\n",
}
"""The end of a program in each form. It is right if the global ``right`` is true."""


def sum_problem(form: str, pairs: Sequence[tuple[int, int]], limits: Limits | None = None) -> Problem:
    """Return the problem in a form of ``FORMS``, with a case for each pair."""
    sums = [(a, b, a + b) for a, b in pairs]
    if form == "input":
        statement = "Print the sum of the two numbers on the line."
        tests = StdinTests([StdinCase(f"{a} {b}\n", f"{total}\n") for a, b, total in sums])
    else:
        statement = "Write `add(a, b)`, which returns the sum of two numbers."
        if form == "call":
            tests = CallTests([CallCase(total, [a, b]) for a, b, total in sums], "add")
        else:
            tests = AssertTests(asserts=[f"assert add({a}, {b}) == {total}" for a, b, total in sums])
    return Problem(f"exam/sum, {form}", statement, tests, limits=limits or Limits())
