"""Six simple tasks, as rows in the schema of each source that recipes read.

A smoke run puts these rows through the recipe's pipeline, without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def find_task(statement: str) -> _SmokeTask | None:
    """Return the task of a statement, or None. Other text may surround the statement."""
    return next((task for task in TASKS if task.result in statement), None)


def _fence(code: str) -> str:
    return f"```python\n{code}```"


def _columns(task: _SmokeTask) -> str:
    inputs, outputs = zip(*task.cases, strict=True)
    return json.dumps({"inputs": inputs, "outputs": outputs})


def _case_list(task: _SmokeTask, kind: str, name: str = "type") -> list[dict[str, str]]:
    return [{name: kind, "input": given, "output": asked} for given, asked in task.cases]


def _asserts(task: _SmokeTask) -> str:
    calls = (
        f"    assert candidate(a = {given.split()[0]}, b = {given.split()[1]}) == {y}"
        for given, y in task.cases
    )
    return "def check(candidate):\n" + "\n".join(call.rstrip() for call in calls) + "\n"


def _archer(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {
        "data_source": "code_contests",
        "prompt": [{"role": "user", "content": task.statement}],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": _columns(task)},
        "extra_info": {"index": number},
        "index": number,
    }


def _code_r1(task: _SmokeTask, number: int) -> dict[str, Any]:
    asked = f"Solve the programming task below in a Python markdown code block.\n{task.statement}"
    return {
        "data_source": "code",
        "prompt": [
            {"role": "system", "content": "You are a helpful programming assistant."},
            {"role": "user", "content": asked},
        ],
        "ability": "coding",
        "reward_model": {"style": "rule", "ground_truth": _columns(task)},
        "extra_info": {
            "split": "train",
            "index": number,
            "reference": task.right,
            "prompt": asked,
            "dataset": "likaixin/TACO-verified",
        },
    }


def _leetcode(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {
        "task_id": f"task-{number}",
        "question_id": number,
        "difficulty": "Easy",
        "tags": ["Math"],
        "problem_description": f"Given two integers a and b, return {task.result}.",
        "starter_code": f"{_STARTER}        ",
        "estimated_date": "2024-08-04",
        "prompt": "from typing import *\n",
        "completion": task.method,
        "entry_point": "Solution().solve",
        "test": _asserts(task),
        "input_output": [],
        "query": "",
        "response": "",
    }


def _taco(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {"problem": task.statement, "tests": _columns(task), "solutions": [task.right]}


def _synthetic(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {
        "problem": _in_prompt(task),
        "solutions": [_fence(task.right)],
        "tests": json.dumps(_case_list(task, "stdin_stdout")),
    }


def _lcbv5(task: _SmokeTask, number: int) -> dict[str, Any]:
    tests = json.dumps(_case_list(task, "stdin", "testtype"))
    return {
        "problem": task.statement,
        "starter_code": "",
        "tests": tests,
        "metadata": {"func_name": None},
    }


def _primeintellect(task: _SmokeTask, number: int) -> dict[str, Any]:
    tests = {"language": "python", "test_cases": _case_list(task, "stdin_stdout")}
    return {
        "source": "apps",
        "task_type": "verifiable_code",
        "in_source_id": f"vfc_{number}",
        "prompt": _in_prompt(task),
        "gold_standard_solution": _fence(task.right),
        "verification_info": repr(tests),
        "metadata": "{'difficulty': None}",
        "problem_id": f"vcp_{number}",
    }


def _livecodebench(task: _SmokeTask, number: int) -> dict[str, Any]:
    public, *private = _case_list(task, "stdin", "testtype")
    return {
        "question_title": f"{number}_A",
        "question_content": task.statement,
        "platform": "codeforces",
        "question_id": f"{number}_A",
        "contest_id": "c1",
        "contest_date": "2024-09-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([public]),
        "private_test_cases": json.dumps(private),
        "metadata": "{}",
    }


def _codeforces(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {"problem": task.statement, "tests": json.dumps(_case_list(task, "stdin", "testtype"))}


def _humaneval(task: _SmokeTask, number: int) -> dict[str, Any]:
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": f'def solve(a: int, b: int) -> int:\n    """Return {task.result}."""\n',
        "canonical_solution": f"    return {task.formula}\n",
        "test": _asserts(task),
        "entry_point": "solve",
    }


def _in_prompt(task: _SmokeTask) -> str:
    return (
        f"Solve the following coding problem using the programming language python:\n\n{task.statement}\n\n"
        "The input will be stdin and you should print your solution to stdout\n\n\n"
        "Now solve the problem and return the code."
    )


_ROWS: dict[str, Callable[[_SmokeTask, int], dict[str, Any]]] = {
    "archer": _archer,
    "code-r1": _code_r1,
    "deepcoder-codeforces": _codeforces,
    "deepcoder-lcbv5": _lcbv5,
    "deepcoder-primeintellect": _synthetic,
    "deepcoder-taco": _taco,
    "humaneval": _humaneval,
    "leetcode": _leetcode,
    "livecodebench": _livecodebench,
    "primeintellect": _primeintellect,
}


def write_rows(source: str, folder: Path) -> Path:
    """Write the tasks as rows of a source to a file, and return it. Raises UserError for a source without
    rows here."""
    if source not in _ROWS:
        raise UserError(
            f"a smoke run has no rows in the schema of `{source}`, only for {', '.join(_ROWS)}; use a "
            "problem file instead: data.build=null data.train=FILE"
        )
    # All tasks, because the steps of a pipeline may drop some of them.
    rows = [_ROWS[source](task, number) for number, task in enumerate(TASKS)]
    file = folder / f"{source}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
