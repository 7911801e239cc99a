"""PrimeIntellect's verifiable coding problems, and the edition of its Python problems by open-r1.

The tests, ``verification_info``, are the ``repr`` of a Python object in text; open-r1 wrote a structure of
text columns instead, and named the statement ``problem_statement``, or ``problem`` where it decontaminated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import references
from whetstone.data.sources.published import known, limits_of
from whetstone.data.sources.source import ColumnError, Row, Skip, Source, text_of
from whetstone.data.sources.test_fields import read_tests
from whetstone.errors import UserError
from whetstone.judge.languages.table import PYTHON, language_named
from whetstone.problem import CallTests, Problem

_ASKS = "Solve the following coding problem using the programming language "
_TELLS = (
    "Now solve the problem and return the code.",
    "Now solve the problem by providing the code.",
    "The input will be stdin and you should print your solution to stdout",
    "The input will be given via stdin and the output should be printed to stdout by your code.",
)
_NAMES = re.compile(
    r"\nYour solution should implemented in the function \"\w+\"\. "
    r"The inputs will be passed to it and it should return the correct solution\.\Z"
)
_OFFERS = "\n\nWrite your solution by modifying this code:\n\n```python\n"


def statement_and_starter(prompt: str) -> tuple[str, str]:
    """The statement in a prompt of these datasets, which put the same words around each, and its starter.

    Other text is returned as it is, without a starter.
    """
    if not prompt.startswith(_ASKS):
        return prompt, ""
    text = prompt.partition(":\n\n")[2].rstrip()
    while words := next((words for words in _TELLS if text.endswith(words)), ""):
        text = text.removesuffix(words).rstrip()
    text = _NAMES.sub("", text).rstrip()
    statement, offered, code = text.rpartition(_OFFERS)
    if offered and code.endswith("```"):
        return statement, code.removesuffix("```")
    return text, ""


def problem_of(source: str, licence: str, row: Row, own_id: str) -> Problem:
    """The problem of a row with ``verification_info``. Raises Skip for a row that holds none."""
    info = object_of(row, "verification_info")
    language = _language(info.get("language") or PYTHON)
    gold = row.get("gold_standard_solution")
    programs, left_out = references([gold] if gold else [], language)
    statement, starter = statement_and_starter(text_of(row, _statement_column(row)))
    tests = read_tests(info, starter=starter, programs=[program.source for program in programs])
    if isinstance(tests, CallTests) and language != PYTHON:
        raise Skip("unsupported_language", f"calls a function in {language}; the judge calls Python's alone")
    metadata = facts_of(row, "metadata")
    return Problem(
        id=f"{source}/{own_id}",
        statement=statement,
        tests=tests,
        language=language,
        starter=starter or None,
        limits=limits_of(metadata.get("time_limit"), metadata.get("memory_limit")),
        references=programs,
        source=source,
        meta=known(
            licence=licence,
            difficulty=metadata.get("difficulty"),
            url=metadata.get("problem_url"),
            origin=row.get("source"),
            original_id=row.get("in_source_id"),
            time_limit=metadata.get("time_limit"),
            memory_limit=metadata.get("memory_limit"),
            references_left_out=left_out,
        ),
    )


def _statement_column(row: Row) -> str:
    return next((name for name in ("problem_statement", "problem") if name in row), "prompt")


def object_of(row: Row, column: str) -> dict[str, Any]:
    """The object in a column, which may be packed into text.

    Raises ColumnError for a value of another type, Skip for a row whose text holds no object.
    """
    value = row.get(column)
    if value is None:
        raise Skip("no_tests", f"`{column}` is empty")
    unpacked = unpack(value, column) if isinstance(value, str) else value
    if isinstance(unpacked, dict):
        return cast(dict[str, Any], unpacked)
    if isinstance(value, str):
        raise Skip("malformed_tests", f"`{column}` holds a {type(unpacked).__name__}, no object")
    raise ColumnError(column, f"a {type(value).__name__}")


def facts_of(row: Row, column: str) -> dict[str, Any]:
    """The object in a column that a problem can do without; empty where there is none."""
    try:
        return object_of(row, column)
    except Skip:
        return {}


def _language(name: str) -> str:
    try:
        return language_named(name, "the problem").name
    except UserError:
        raise Skip("unsupported_language", f"asks for a program in {name}") from None


_INFO = "an object with `language` and `test_cases`, as Python or JSON in text or as a structure"
_GOLD = "a program, in a Markdown fence"


def _source(name: str, title: str, hub_id: str, revision: str, statement: str) -> Source:
    licence = "as of each problem's site; none given for the collection"

    def convert(row: Row, own_id: str) -> Iterator[Problem]:
        yield problem_of(name, licence, row, own_id)

    return Source(
        name=name,
        title=title,
        hub_id=hub_id,
        revision=revision,
        files={"train": "data/train-*.parquet"},
        columns={
            statement: "the statement, as text",
            "gold_standard_solution": _GOLD,
            "verification_info": _INFO,
            "problem_id": "the problem's id, as text",
        },
        licence=licence,
        convert=convert,
        id_columns=("problem_id",),
        example=f"whetstone data prepare {name} --out sets/{name}",
    )


SOURCES = (
    _source(
        "primeintellect",
        "PrimeIntellect's verifiable coding problems: 144,169 in several languages",
        "PrimeIntellect/verifiable-coding-problems",
        "45220c9",
        "prompt",
    ),
    _source(
        "primeintellect-python",
        "The 35,735 Python problems of PrimeIntellect's, in open-r1's edition",
        "open-r1/verifiable-coding-problems-python",
        "b761a24a95fa03289a231d2d31c183636ffb9833",
        "problem_statement or problem",
    ),
)
