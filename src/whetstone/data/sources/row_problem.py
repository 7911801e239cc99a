"""Builds a problem from the common fields of training sets: statement, tests, solutions, starter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from whetstone.core.problem import CallTests, Limits, Problem
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import references
from whetstone.data.sources.source import DatasetSource, Skip
from whetstone.data.sources.test_fields import read_tests
from whetstone.judge.languages.table import PYTHON

# Seconds until the year 2128. Problems have dates before, and milliseconds are more since 1970.
_MOST_SECONDS = 5_000_000_000
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 0.001, "millisecond": 0.001}
_MEGABYTES = {
    **{"": 1.0, "m": 1.0, "mb": 1.0, "mib": 1.0, "megabyte": 1.0},
    **{"kb": 2.0**-10, "kib": 2.0**-10, "kilobyte": 2.0**-10, "b": 2.0**-20, "byte": 2.0**-20},
    **{"g": 2.0**10, "gb": 2.0**10, "gib": 2.0**10, "gigabyte": 2.0**10},
}


def limits_of(time: Any, memory: Any) -> Limits:
    """Return limits at least as large as the published ones and as the defaults.

    ``time`` and ``memory`` are text ("2.0 seconds", "256 megabytes"), or a number of seconds or megabytes.
    Sites set limits for compiled languages, so these never reduce the limits.
    """
    ours = Limits()
    return Limits(
        cpu_s=max(ours.cpu_s, _amount(time, _SECONDS)),
        memory_mb=max(ours.memory_mb, _amount(memory, _MEGABYTES)),
    )


def _amount(value: Any, units: dict[str, float]) -> float:
    """Return the amount in the base unit; 0 if the value has none."""
    found = _AMOUNT.match(str(value)) if isinstance(value, str | int | float) else None
    if found is None:
        return 0.0
    unit = found[2].lower()
    return float(found[1]) * units.get(unit, units.get(unit.removesuffix("s"), 0.0))


def moment_of(value: Any) -> datetime | None:
    """Return a date and time: a value of that type, its text, or a number of seconds since 1970 in UTC.

    Programs that write JSON use milliseconds, microseconds or nanoseconds, too. None for other values.
    """
    try:
        if not isinstance(value, int) or isinstance(value, bool):
            return datetime.fromisoformat(str(value)).replace(tzinfo=None)
        while abs(value) >= _MOST_SECONDS:
            value //= 1000
        return datetime.fromtimestamp(value, UTC).replace(tzinfo=None)
    except ValueError:
        return None


def day_of(value: Any) -> str:
    """Return the day of a date as ten characters; empty for other values."""
    moment = moment_of(value) or moment_of(str(value)[:10])
    return str(moment.date()) if moment else ""


def known(**facts: Any) -> dict[str, Any]:
    """Return the facts that are neither None nor empty."""
    return {name: fact for name, fact in facts.items() if fact not in (None, "", [], {})}


def names_in(value: Any) -> list[str]:
    """Return tags: a list of names, or one packed into text; other values have none."""
    if isinstance(value, str) and value.strip():
        try:
            value = unpack(value, "tags")
        except Skip:
            return []
    return (
        [name for name in cast(list[Any], value) if isinstance(name, str)] if isinstance(value, list) else []
    )


def row_problem(
    source: DatasetSource,
    own_id: str,
    *,
    statement: str,
    tests: Any,
    solutions: object,
    starter: str = "",
    function: str | None = None,
    language: str = PYTHON,
    limits: Limits | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Problem:
    """Return a problem of ``source`` whose tests are a field in any form that ``read_tests`` supports.

    ``solutions`` are programs in ``language``, as written; those that cannot be judged are counted in
    ``meta``. ``function`` is the name of the called function, if the row states it. Non-empty ``facts`` are
    stored in ``meta``. Raises Skip for tests that cannot be judged.
    """
    programs, left_out = references(solutions, language)
    read = read_tests(tests, function=function, starter=starter, programs=[p.source for p in programs])
    if isinstance(read, CallTests) and language != PYTHON:
        raise Skip(
            "unsupported_language",
            f"calls a function in {language}; the judge calls functions of Python only",
        )
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
