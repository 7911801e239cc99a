"""Items about limits: right programs within them, and programs that exceed them before a right answer.

The programs are in ``limits.toml``. Their problem is the sum of two numbers, in each form of tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Limits,
    Problem,
    Program,
    StdinCase,
    StdinTests,
)
from whetstone_exam.exam.items import ExamItem, Kind

CLASS = "limits"

FORMS = {
    "input": "print(sum(map(int, input().split())) if right else -1)\n",
    "call": "def add(a, b):\n    return a + b if right else -1\n",
    "asserts": "def add(a, b):\n    return a + b if right else -1\n",
}
"""The end of a program in each form. It is right if the global ``right`` is true."""

_PAIRS = ((2, 3), (10, -4))
# Half of the CPU time in each of many cases, as graders with one clock for all cases do not allow.
_MANY_PAIRS = tuple((number, 7) for number in range(6))


def sum_problem(form: str, pairs: Sequence[tuple[int, int]], limits: Limits | None = None) -> Problem:
    """Return the sum of two numbers as a problem in a form of ``FORMS``, with a case for each pair."""
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


def limit_items(cpu_s: float = 2.0) -> list[ExamItem]:
    """Return the items of all forms of tests, with a limit of ``cpu_s`` CPU seconds and of 512 MiB."""
    file = resources.files("whetstone_exam.exam") / "limits.toml"
    programs = tomllib.loads(file.read_text(encoding="utf-8"))["program"]
    limits = Limits(cpu_s=cpu_s, memory_mb=512.0)
    items = [
        _item(program, f", {form}", "", sum_problem(form, _PAIRS, limits), end)
        for program in programs
        for form, end in FORMS.items()
    ]
    half = next(program for program in programs if program["name"] == "half of the CPU time")
    many = sum_problem("input", _MANY_PAIRS, limits)
    return [*items, _item(half, " in each of six cases", " in each of six cases", many, FORMS["input"])]


def _item(program: dict[str, Any], more_name: str, more_aim: str, problem: Problem, end: str) -> ExamItem:
    """Return a program of ``limits.toml`` as an item; ``end``: its end in the form of the problem."""
    kind: Kind = program["kind"]
    source = f"limit = {problem.limits.cpu_s}\nright = True\n{program['source']}{end}"
    return ExamItem(
        f"{kind}/{CLASS}/{program['name']}{more_name}",
        kind,
        CLASS,
        f"be accepted, and {program['aim']}{more_aim}",
        problem,
        Program("python", source),
    )
