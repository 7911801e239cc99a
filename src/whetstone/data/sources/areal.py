"""AReaL-boba-2-RL-Code: DeepCoder's problems after AReaL's filters, and four benchmarks in its format.

Arguments of functions are JSON values, one a line. ``fn_name`` is empty for a program that reads its input.
The training prompts have the marks of a chat template, the benchmarks a plain ``question``.
"""

from __future__ import annotations

import msgspec

from whetstone.core.problem import CallTests, Problem
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import shown_code
from whetstone.data.sources.row_problem import row_problem
from whetstone.data.sources.source import DatasetSource, Row, Skip, dict_of, list_of, text_of

_MARKS = (
    *(
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<|im_start|>user",
        "<|im_start|>assistant",
    ),
    *("<|im_end|>", "<think>", "/think"),
)


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of AReaL's set."""
    task = text_of(row, "task", default="code")
    if task != "code":
        raise Skip("not_code", f"a task of the kind {task}")
    statement = without_marks(text_of(row, "question" if row.get("question") else "prompt"))
    problem = row_problem(
        source,
        own_id,
        statement=statement,
        starter=shown_code(statement),
        solutions=list_of(row, "solutions", default=[]),
        function=dict_of(row, "metadata", default={}).get("fn_name") or None,
        tests=unpack(text_of(row, "input_output"), "input_output"),
    )
    # Code in a statement is a starter only if a function is called.
    return problem if isinstance(problem.tests, CallTests) else msgspec.structs.replace(problem, starter=None)


def without_marks(prompt: str) -> str:
    """Return a prompt without the marks of a chat template at its ends."""
    text = prompt.strip()
    while True:
        before = text
        for mark in _MARKS:
            text = text.removeprefix(mark).removesuffix(mark).strip()
        if text == before:
            return text
