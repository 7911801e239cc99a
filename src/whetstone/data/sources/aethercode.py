"""AetherCode: problems of the ICPC and of olympiads for C++, with testlib checkers."""

from __future__ import annotations

from whetstone.core.problem import Limits, Problem, ProgramChecker, StdinTests
from whetstone.data.sources.programs import with_testlib
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip, case_of, list_of, text_of

_MEMORY_MB = 1024.0


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of AetherCode."""
    cases = [case_of(test, "test_cases") for test in list_of(row, "test_cases")]
    if not cases:
        raise Skip("no_tests", "`test_cases` is empty")
    checker = text_of(row, "checker", default="").strip()
    # The column is in bytes or in megabytes. No contest allows a million megabytes.
    memory = _number(row, "memory_limit", _MEMORY_MB)
    memory_mb = memory / 2**20 if memory > 2**20 else memory
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=text_of(row, "description"),
        tests=StdinTests(cases),
        language="cpp",
        checker=ProgramChecker("cpp", with_testlib(checker, "AetherCode"), "testlib") if checker else None,
        limits=Limits(cpu_s=_number(row, "time_limit", 1000) / 1000, memory_mb=memory_mb),
        source=source.name,
        meta=known(
            licence=source.licence,
            difficulty=text_of(row, "difficulty", default="").lower(),
            contest=text_of(row, "contest_name", default=""),
            platform=text_of(row, "contest_category", default=""),
            contest_date=text_of(row, "date", default="").replace("/", "-"),
        ),
    )


def _number(row: Row, column: str, default: float) -> float:
    value = row.get(column)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise ColumnError(column, f"{value!r}", "a positive number")
    return float(value)
