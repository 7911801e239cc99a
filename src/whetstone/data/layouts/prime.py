"""PrimeIntellect: rows as in verifiable-coding-problems and in the coding tasks of SYNTHETIC-1.

``verification_info`` is text: JSON of ``language`` and ``test_cases``. A case of type ``stdin_stdout`` has
texts; one of type ``function_call`` has a list of arguments, the answer in a list of one, and its
``fn_name``. Read in ScaleBox 4bcfefd, whose recipe trains on these rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from whetstone.data.layouts.layout import (
    Layout,
    Row,
    asked,
    compact,
    reference,
    require_calls,
    require_python,
    require_texts,
)
from whetstone.problem import CallTests, Problem

_COLUMNS = (
    "problem_id", "task_type", "source", "in_source_id", "prompt", "gold_standard_solution",
    "verification_info", "metadata",
)  # fmt: skip


def _row(problem: Problem, split: str, index: int) -> Row:
    info = {"language": problem.language, "test_cases": _cases(problem)}
    gold = reference(problem)
    return {
        "problem_id": problem.id,
        "task_type": "verifiable_code",
        "source": problem.source,
        "in_source_id": str(problem.meta.get("original_id", "")) or None,
        "prompt": asked(problem),
        "gold_standard_solution": f"```{problem.language}\n{gold.rstrip()}\n```" if gold else None,
        "verification_info": compact(info),
        "metadata": compact({"difficulty": problem.meta.get("difficulty")}),
    }


def _cases(problem: Problem) -> list[dict[str, Any]]:
    if not isinstance(problem.tests, CallTests):
        texts = require_texts(problem)
        return [{"type": "stdin_stdout", "input": c.input, "output": c.output} for c in texts.cases]
    require_python(problem)
    calls = require_calls(problem)
    return [
        {"type": "function_call", "fn_name": calls.function, "input": case.args, "output": [case.expected]}
        for case in calls.cases
    ]


PRIME = Layout(
    name="prime",
    title="PrimeIntellect's verifiable-coding-problems and SYNTHETIC-1",
    schema=pa.schema([pa.field(name, pa.string()) for name in _COLUMNS]),
    row=_row,
    carries="stdin tests compared as text, and calls of Python functions with positional arguments",
    way_out="leave them out with `whetstone data select --kinds stdin,call`, or write them with --layout trl",
)
