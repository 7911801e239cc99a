"""LiveCodeBench, code generation: contest problems with their dates, and public and private tests.

Jain et al. 2024, arXiv 2403.07974. Private tests are JSON, or base64 of a compressed pickle of its text,
which is read without executing it. The files of the ``lite`` set and of the full one have the same columns.
"""

from __future__ import annotations

from typing import Any, cast

from whetstone.core.problem import Limits, Problem
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.primeintellect import facts_of
from whetstone.data.sources.row_problem import day_of, known
from whetstone.data.sources.source import DatasetSource, Row, Skip, text_of
from whetstone.data.sources.test_fields import read_tests

# Six seconds a test, and the memory limit that its grader intends.
LIMITS = Limits(cpu_s=6.0, memory_mb=4096.0)


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of LiveCodeBench."""
    public, private = _tests(row, "public_test_cases"), _tests(row, "private_test_cases")
    starter = text_of(row, "starter_code", default="")
    function = facts_of(row, "metadata").get("func_name")
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=text_of(row, "question_content"),
        tests=read_tests([*public, *private], function=function, starter=starter),
        starter=starter or None,
        limits=LIMITS,
        source=source.name,
        meta=known(
            licence=source.licence,
            title=text_of(row, "question_title", default=""),
            platform=text_of(row, "platform"),
            difficulty=text_of(row, "difficulty", default=""),
            contest=text_of(row, "contest_id", default=""),
            contest_date=day_of(row.get("contest_date")),
            public_tests=len(public),
        ),
    )


def _tests(row: Row, column: str) -> list[Any]:
    value = row.get(column)
    value = value if isinstance(value, list) else unpack(text_of(row, column), column)
    if not isinstance(value, list):
        raise Skip("malformed_tests", f"`{column}` is not a list")
    return cast("list[Any]", value)
