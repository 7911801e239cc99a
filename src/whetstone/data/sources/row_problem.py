"""A problem out of what rows of training sets mostly hold: statement, tests, solutions, starter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from whetstone.data.sources.programs import references
from whetstone.data.sources.published import known
from whetstone.data.sources.source import Skip, Source
from whetstone.data.sources.test_fields import read_tests
from whetstone.judge.languages.table import PYTHON
from whetstone.problem import CallTests, Limits, Problem


def row_problem(
    source: Source,
    own_id: str,
    *,
    statement: str,
    tests: Any,
    solutions: Iterable[Any],
    starter: str = "",
    function: str | None = None,
    language: str = PYTHON,
    limits: Limits | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Problem:
    """The problem of ``source`` whose tests are a field in any of the forms that ``read_tests`` knows.

    ``solutions`` are programs in ``language``, as written; those that cannot be judged are counted in
    ``meta``. ``function`` is the name of the called function, where the row says it; ``facts`` are what else
    is known, those that are empty left out. Raises Skip for tests that cannot be judged.
    """
    programs, left_out = references(solutions, language)
    read = read_tests(tests, function=function, starter=starter, programs=[p.source for p in programs])
    if isinstance(read, CallTests) and language != PYTHON:
        raise Skip("unsupported_language", f"calls a function in {language}; the judge calls Python's alone")
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=statement,
        tests=read,
        language=language,
        starter=starter or None,
        limits=limits or Limits(),
        references=programs,
        source=source.name,
        meta=known(licence=source.licence, **(facts or {}), references_left_out=left_out),
    )
