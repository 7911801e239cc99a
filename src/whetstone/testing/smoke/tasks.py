"""Six simple tasks, as rows in the schema of each source that recipes read (``rows.json``).

And planted replies: a correct and a wrong program for each prompt, in the reply format of the recipe.

A smoke run puts these rows through the recipe's pipeline, without a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, cast

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import CallTests, Problem
from whetstone.environments.prompt import Tokenizer, render_prompt
from whetstone.environments.prompt_text import prompt_of, reply_prefix
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge.extract import names_called

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


PlantedReplies = dict[str, dict[str, str]]
"""A correct and a wrong reply (``right``, ``wrong``), by the prompt as the engine sees it in text."""


def planted_replies(
    problems: Iterable[Problem], settings: EnvironmentSection, tokenizer: Tokenizer
) -> PlantedReplies:
    """Return the replies to all problems for which a correct program is known."""
    found: PlantedReplies = {}
    for problem in problems:
        programs = known_programs_for(problem)
        replies = [_reply_with(problem, settings, program) for program in programs]
        if replies and all(replies):
            right, wrong = replies
            found[render_prompt(prompt_of(problem, settings), tokenizer)] = {
                "right": right or "",
                "wrong": wrong or "",
            }
    return found


def known_programs_for(problem: Problem) -> tuple[str, str] | tuple[()]:
    """Return a correct and a wrong program; empty if no correct one is known."""
    task = find_task(problem.statement)
    if problem.references:
        right = problem.references[0].source
    elif task is not None:
        right = task.method if isinstance(problem.tests, CallTests) else task.right
    else:
        return ()
    wrong = (
        problem.wrong[0].source if problem.wrong else task.wrong if task else _wrong_program(problem, right)
    )
    return right, wrong


def _wrong_program(problem: Problem, right: str) -> str:
    """Return a program of the correct form that returns or prints nothing."""
    name = next(iter(names_called(problem)), None)
    if name is None:
        return "print()\n"
    kept = [line for line in right.splitlines() if line.startswith(("def ", "class "))][:1]
    header = kept[0] if kept and name in kept[0] else f"def {name}(*args):"
    return f"{header}\n    return None\n" if header.startswith("def ") else f"{header}\n    pass\n"


def _reply_with(problem: Problem, settings: EnvironmentSection, code: str) -> str | None:
    """Return the reply from which the environment extracts this program. None if the start of the reply is
    given and contains another program."""
    whole = _format_reply(settings, code.rstrip())
    prefix = reply_prefix(problem, settings)
    if not prefix or whole.startswith(prefix):
        return whole[len(prefix) :]
    if "```" not in prefix and settings.extraction != "whole" and settings.answer_format == "plain":
        return whole  # the prefix is finished thinking, such as `<think></think>`
    first_part = prefix.rpartition("```python\n")[2]
    if "```python\n" in prefix and code.startswith(first_part):  # prose, and then the fence
        return f"{code[len(first_part) :].rstrip()}\n```"
    return None


def _format_reply(settings: EnvironmentSection, code: str) -> str:
    fenced = f"```python\n{code}\n```"
    if settings.answer_format == "think_answer":
        return f"<think>\nIt is short.\n</think>\n<answer>\n{fenced}\n</answer>"
    return code if settings.extraction == "whole" else fenced
