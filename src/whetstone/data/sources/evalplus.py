"""HumanEval+ and MBPP+: the problems of HumanEval and MBPP with many more inputs.

Liu et al. 2023, arXiv 2305.01210. Two forms are read. The releases (``HumanEvalPlus.jsonl.gz``,
``MbppPlus.jsonl.gz``) have inputs and a reference, which ``plus_tests`` converts to test code. The copies on
the hub have test code with the results, which needs numpy in the test process.
"""

from __future__ import annotations

from typing import Any

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Limits, Problem, Program
from whetstone.data.sources.mbpp import called_function
from whetstone.data.sources.plus_tests import plus_tests, with_python_types
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, list_of, text_of, value_of

# Limits for up to a thousand inputs together. The slowest reference needs 16 s (MBPP/599), the largest 1.2 GB
# (MBPP/255).
LIMITS = Limits(cpu_s=30.0, memory_mb=2048.0)
# The two cases of a problem in the form of the releases: the original inputs, and the added ones.
CASES = ["base", "plus"]


def convert_humaneval_plus(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of HumanEval+."""
    task, prompt, entry_point = (text_of(row, name) for name in ("task_id", "prompt", "entry_point"))
    reference = prompt + text_of(row, "canonical_solution")
    if "plus_input" in row:
        base, plus = _inputs(row, "base_input"), _inputs(row, "plus_input")
        tests = plus_tests(entry_point, reference, base, plus, _atol(row))
    else:
        # The test of HumanEval/32 passes result and input in the wrong order, and fails every program.
        check = text_of(row, "test").replace(
            "_poly(*candidate(*inp), inp)", "abs(_poly(*inp, candidate(*inp)))"
        )
        tests = AssertTests(check=check, entry_point=entry_point)
    return Problem(
        id=f"{source.name}/{task.rpartition('/')[2]}",
        statement=prompt,
        starter=prompt,
        tests=tests,
        limits=LIMITS,
        references=[Program("python", reference)],
        source=source.name,
        meta={"licence": source.licence, "task_id": task, COMPLETES_STARTER: True, **_cases(row)},
    )


def convert_mbpp_plus(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of MBPP+."""
    if "plus_input" in row:
        number = int(text_of(row, "task_id").rpartition("/")[2])
        statement, reference = text_of(row, "prompt"), text_of(row, "canonical_solution")
        base = with_python_types(number, _inputs(row, "base_input"))
        plus = with_python_types(number, _inputs(row, "plus_input"))
        tests = plus_tests(text_of(row, "entry_point"), reference, base, plus, _atol(row))
        statement = _without_quotes(statement)
    else:
        number, reference = value_of(row, "task_id", int), text_of(row, "code")
        asserts = "\n".join(str(line) for line in list_of(row, "test_list"))
        entry_point = called_function(reference, asserts)
        tests = AssertTests(asserts=[text_of(row, "test")], entry_point=entry_point)
        statement = f"{text_of(row, 'prompt').strip()}\nYour code should pass these tests:\n\n{asserts}"
    return Problem(
        id=f"{source.name}/{number}",
        statement=statement,
        tests=tests,
        limits=LIMITS,
        references=[Program("python", reference)],
        source=source.name,
        meta={"licence": source.licence, "task_id": f"Mbpp/{number}", **_cases(row)},
    )


def _inputs(row: Row, column: str) -> list[list[Any]]:
    # A row of a release has {} for no inputs.
    inputs = list_of(row, column) if row.get(column) else []
    if not all(isinstance(arguments, list) for arguments in inputs):
        raise ColumnError(column, "a list of other things", "a list of lists of arguments")
    return inputs


def _atol(row: Row) -> float:
    value = row.get("atol", 0)
    if not isinstance(value, int | float):
        raise ColumnError("atol", f"a {type(value).__name__}", "a number")
    return float(value)


def _cases(row: Row) -> dict[str, Any]:
    return {"cases": CASES} if "plus_input" in row else {}


def _without_quotes(prompt: str) -> str:
    """Return a prompt without quotes. The releases write MBPP's prompts as Python docstrings."""
    text = prompt.strip()
    for quotes in ('"""', "'''"):
        if len(text) >= 6 and text.startswith(quotes) and text.endswith(quotes):
            return text[3:-3].strip()
    return text
