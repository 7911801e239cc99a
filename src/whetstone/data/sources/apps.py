"""APPS, and TACO with the same columns: problems of several sites, with tests as JSON in text.

The part of TACO that likaixin verified is a separate source. Its problems have many solutions each.
"""

from __future__ import annotations

from typing import Any

from whetstone.core.problem import Problem
from whetstone.data.sources.row_problem import day_of, limits_of, names_in, row_problem
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, json_of, text_of


def convert_apps(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of APPS."""
    return row_problem(
        source,
        own_id,
        starter=text_of(row, "starter_code", default=""),
        solutions=json_of(row, "solutions", empty=[]),
        statement=text_of(row, "question"),
        tests=text_of(row, "input_output"),
        facts={name: row.get(name) for name in ("difficulty", "url")},
    )


def convert_taco(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of TACO."""
    return row_problem(
        source,
        own_id,
        starter=text_of(row, "starter_code", default=""),
        solutions=_solutions(row),
        statement=text_of(row, "question"),
        tests=text_of(row, "input_output"),
        limits=limits_of(row.get("time_limit"), row.get("memory_limit")),
        facts=_facts(row),
    )


def _solutions(row: Row) -> list[Any]:
    """Return the programs, which are a list, or JSON of one in text."""
    value = row.get("solutions")
    if isinstance(value, str):
        value = json_of(row, "solutions", empty=[])
    if not isinstance(value, list):
        raise ColumnError("solutions", "missing" if "solutions" not in row else f"a {type(value).__name__}")
    return value


def _facts(row: Row) -> dict[str, Any]:
    pictures = row.get("picture_num")
    return {
        **{name: row.get(name) for name in ("name", "difficulty", "url")},
        "origin": row.get("source"),
        "tags": names_in(row.get("tags")),
        "skills": names_in(row.get("skill_types")),
        "contest_date": day_of(row.get("date")),
        "pictures": int(pictures) if isinstance(pictures, str | int) and str(pictures).isdecimal() else 0,
        **{name: row.get(name) for name in ("time_limit", "memory_limit")},
    }
