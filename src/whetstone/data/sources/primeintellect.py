"""PrimeIntellect's verifiable coding problems, open-r1's edition of the Python ones, and SYNTHETIC-1.

The tests, ``verification_info``, are the ``repr`` of a Python object in text. open-r1 wrote a structure of
text columns instead. It named the statement ``problem_statement``, or ``problem`` after decontamination.
SYNTHETIC-1 has replies of a model to such tasks, so a problem occurs many times. Its first row counts, the
others are duplicates, and the replies are not used.
"""

from __future__ import annotations

import re
from typing import Any, cast

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.row_problem import limits_of, row_problem
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip, text_of
from whetstone.judge.languages.table import PYTHON, language_named

_INSTRUCTION = "Solve the following coding problem using the programming language "
_CLOSING_SENTENCES = (
    "Now solve the problem and return the code.",
    "Now solve the problem by providing the code.",
    "The input will be stdin and you should print your solution to stdout",
    "The input will be given via stdin and the output should be printed to stdout by your code.",
)
_FUNCTION_SENTENCE = re.compile(
    r"\nYour solution should implemented in the function \"\w+\"\. "
    r"The inputs will be passed to it and it should return the correct solution\.\Z"
)
_STARTER_OFFER = "\n\nWrite your solution by modifying this code:\n\n```python\n"


def statement_and_starter(prompt: str) -> tuple[str, str]:
    """Return the statement and the starter in a prompt of these datasets, which all have the same
    instructions.

    Other text is returned unchanged, without a starter.
    """
    if not prompt.startswith(_INSTRUCTION):
        return prompt, ""
    text = prompt.partition(":\n\n")[2].rstrip()
    while words := next((words for words in _CLOSING_SENTENCES if text.endswith(words)), ""):
        text = text.removesuffix(words).rstrip()
    text = _FUNCTION_SENTENCE.sub("", text).rstrip()
    statement, separator, code = text.rpartition(_STARTER_OFFER)
    if separator and code.endswith("```"):
        return statement, code.removesuffix("```")
    return text, ""


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of PrimeIntellect's set, or of open-r1's edition."""
    info = object_of(row, "verification_info")
    gold = row.get("gold_standard_solution")
    name = info.get("language") or PYTHON
    try:
        language = language_named(name, "the problem").name
    except UserError:
        raise Skip("unsupported_language", f"asks for a program in {name}") from None
    column = next((name for name in ("problem_statement", "problem") if name in row), "prompt")
    statement, starter = statement_and_starter(text_of(row, column))
    metadata = facts_of(row, "metadata")
    return row_problem(
        source,
        own_id,
        statement=statement,
        tests=info,
        solutions=[gold] if gold else [],
        starter=starter,
        language=language,
        limits=limits_of(metadata.get("time_limit"), metadata.get("memory_limit")),
        facts={
            "difficulty": metadata.get("difficulty"),
            "url": metadata.get("problem_url"),
            "origin": row.get("source"),
            "original_id": row.get("in_source_id"),
            "time_limit": metadata.get("time_limit"),
            "memory_limit": metadata.get("memory_limit"),
        },
    )


def convert_synthetic(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of SYNTHETIC-1."""
    task = text_of(row, "task_type")
    if task != "verifiable_code":
        raise Skip("not_code", f"a task of the type {task}")
    return convert(source, row, own_id)


def object_of(row: Row, column: str) -> dict[str, Any]:
    """Return the object in a column, which may be packed into text.

    Raises ColumnError for a value of another type, Skip for a row whose text is not an object.
    """
    value = row.get(column)
    if value is None:
        raise Skip("no_tests", f"`{column}` is empty")
    unpacked = unpack(value, column) if isinstance(value, str) else value
    if isinstance(unpacked, dict):
        return cast(dict[str, Any], unpacked)
    if isinstance(value, str):
        raise Skip("malformed_tests", f"`{column}` is a {type(unpacked).__name__}, not an object")
    raise ColumnError(column, f"a {type(value).__name__}")


def facts_of(row: Row, column: str) -> dict[str, Any]:
    """Return the object in an optional column; empty if there is none."""
    try:
        return object_of(row, column)
    except Skip:
        return {}
