"""Six simple tasks, as rows in the schema of each source that recipes read (``rows.json``).

A smoke run puts these rows through the recipe's pipeline, without a network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, cast

from msgspec import Struct

from whetstone.core.errors import UserError

_INPUTS = ((1, 2), (5, 3), (-4, 7), (0, 0), (12, -12), (9, 9), (100, 1))


class _SmokeTask(Struct, frozen=True):
    """``result`` is a part of every statement, by which :func:`find_task` recognizes the task. ``formula`` is
    in a and b."""

    result: str
    formula: str

    @property
    def cases(self) -> list[tuple[str, str]]:
        """The input and output of each test."""
        answers = [eval(self.formula, {"a": a, "b": b}) for a, b in _INPUTS]  # only the six formulas below
        return [(f"{a} {b}\n", f"{y}\n") for (a, b), y in zip(_INPUTS, answers, strict=True)]

    @property
    def statement(self) -> str:
        """The statement in the style of a contest."""
        return f"Two integers a and b stand on a line. Print {self.result}."

    @property
    def right(self) -> str:
        """A correct program."""
        return f"a, b = map(int, input().split())\nprint({self.formula})\n"

    @property
    def wrong(self) -> str:
        """A wrong program."""
        return "a, b = map(int, input().split())\nprint(a - b - 1000)\n"

    @property
    def method(self) -> str:
        """A class in the style of LeetCode, whose method solves the task."""
        return f"{_STARTER}        return {self.formula}\n"


_STARTER = "class Solution:\n    def solve(self, a: int, b: int) -> int:\n"
TASKS = (
    _SmokeTask("the sum of a and b", "a + b"),
    _SmokeTask("a reduced by b", "a - b"),
    _SmokeTask("the product of a and b", "a * b"),
    _SmokeTask("the larger one of a and b", "max(a, b)"),
    _SmokeTask("the smaller one of a and b", "min(a, b)"),
    _SmokeTask("the square of a, and b added to it", "a * a + b"),
)
_IN_PROMPT = (
    "Solve the following coding problem using the programming language python:\n\n{statement}\n\n"
    "The input will be stdin and you should print your solution to stdout\n\n\n"
    "Now solve the problem and return the code."
)


def find_task(statement: str) -> _SmokeTask | None:
    """Return the task of a statement, or None. Other text may surround the statement."""
    return next((task for task in TASKS if task.result in statement), None)


def _texts(task: _SmokeTask, number: int) -> dict[str, str]:
    """Return what replaces the names after ``$`` in the rows."""
    inputs, outputs = zip(*task.cases, strict=True)
    cases = _case_list(task, "type", "stdin_stdout")
    first, *others = typed_cases = _case_list(task, "testtype", "stdin")
    asserts = [
        f"    assert candidate(a = {given.split()[0]}, b = {given.split()[1]}) == {answer.rstrip()}\n"
        for given, answer in task.cases
    ]
    return {
        "number": str(number),
        "statement": task.statement,
        "result": task.result,
        "formula": task.formula,
        "right": task.right,
        "fenced": f"```python\n{task.right}```",
        "starter": _STARTER,
        "method": task.method,
        "in_prompt": _IN_PROMPT.format(statement=task.statement),
        "columns": json.dumps({"inputs": inputs, "outputs": outputs}),
        "cases": json.dumps(cases),
        "typed_cases": json.dumps(typed_cases),
        "first_case": json.dumps([first]),
        "other_cases": json.dumps(others),
        "python_cases": repr({"language": "python", "test_cases": cases}),
        "asserts": f"def check(candidate):\n{''.join(asserts)}",
    }


def _case_list(task: _SmokeTask, key: str, kind: str) -> list[dict[str, str]]:
    return [{key: kind, "input": given, "output": answer} for given, answer in task.cases]


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a row with its texts filled in. ``$number`` alone is an integer."""
    match value:
        case dict():
            return {key: _filled(item, texts) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_filled(item, texts) for item in cast("list[Any]", value)]
        case "$number":
            return int(texts["number"])
        case str():
            return Template(value).substitute(texts)
        case _:
            return value


def write_rows(source: str, folder: Path) -> Path:
    """Write the tasks as rows of a source to a file, and return it. Raises UserError for a source without
    rows in ``rows.json``."""
    rows = json.loads((resources.files("whetstone.testing.smoke") / "rows.json").read_text(encoding="utf-8"))
    if source not in rows:
        raise UserError(
            f"a smoke run has no rows in the schema of `{source}`, only for {', '.join(rows)}; use a "
            "problem file instead: data.build=null data.train=FILE"
        )
    file = folder / f"{source}.jsonl"
    # All tasks, because the steps of a pipeline may drop some of them.
    filled = (_filled(rows[source], _texts(task, number)) for number, task in enumerate(TASKS))
    file.write_text("".join(json.dumps(row) + "\n" for row in filled), encoding="utf-8")
    return file
