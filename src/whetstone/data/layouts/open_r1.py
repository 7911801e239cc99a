"""open-r1: rows for its ``code_reward``, in the columns of open-r1/verifiable-coding-problems-python.

Read in open-r1 0056faa: a Python program reads each case's ``input``, and its output is held against
``output`` line by line. Missing and extra lines are not seen there. Functions are never called, so only
stdin tests are carried. ``prompt`` is text, the default of its ``dataset_prompt_column``.
"""

from __future__ import annotations

import pyarrow as pa

from whetstone.data.layouts.layout import (
    Layout,
    Row,
    asked,
    compact,
    reference,
    require_python,
    require_texts,
)
from whetstone.problem import Problem

_CASE = pa.struct(
    {"fn_name": pa.string(), "input": pa.string(), "output": pa.string(), "type": pa.string()},
)
_SCHEMA = pa.schema({
    "source": pa.string(),
    "task_type": pa.string(),
    "in_source_id": pa.string(),
    "problem_statement": pa.string(),
    "prompt": pa.string(),
    "gold_standard_solution": pa.string(),
    "problem_id": pa.string(),
    "metadata": pa.string(),
    "verification_info": pa.struct({"language": pa.string(), "test_cases": pa.list_(_CASE)}),
})  # fmt: skip


def _row(problem: Problem, split: str, index: int) -> Row:
    require_python(problem)
    cases = [
        {"fn_name": None, "input": case.input, "output": case.output, "type": "stdin_stdout"}
        for case in require_texts(problem).cases
    ]
    return {
        "source": problem.source,
        "task_type": "verifiable_code",
        "in_source_id": str(problem.meta.get("original_id", "")) or None,
        "problem_statement": problem.statement,
        "prompt": asked(problem),
        "gold_standard_solution": reference(problem) or None,
        "problem_id": problem.id,
        "metadata": compact({"difficulty": problem.meta.get("difficulty")}),
        "verification_info": {"language": problem.language, "test_cases": cases},
    }


OPEN_R1 = Layout(
    name="open-r1",
    title="open-r1's code_reward, as in open-r1/verifiable-coding-problems-python",
    schema=_SCHEMA,
    row=_row,
    carries="Python problems with stdin tests compared as text",
    way_out="leave them out with `whetstone data select --kinds stdin`, or write them with --layout trl",
)
