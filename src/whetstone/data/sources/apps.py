"""APPS, and TACO with the same columns: problems of several sites, with tests as JSON in text.

The part of TACO that likaixin verified is a separate source. Its problems have many solutions each.
"""

from __future__ import annotations

from typing import Any

from whetstone.core.problem import Problem
from whetstone.data.sources.row_problem import day_of, limits_of, names_in, row_problem
from whetstone.data.sources.source import DatasetSource, Row, json_of, text_of


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of either. APPS has neither limits nor most of the facts."""
    solutions = row.get("solutions")
    if not isinstance(solutions, list):
        solutions = json_of(row, "solutions", empty=[])
    return row_problem(
        source,
        own_id,
        starter=text_of(row, "starter_code", default=""),
        solutions=solutions,
        statement=text_of(row, "question"),
        tests=text_of(row, "input_output"),
        limits=limits_of(row.get("time_limit"), row.get("memory_limit")),
        facts=_facts(row),
    )


def _facts(row: Row) -> dict[str, Any]:
    pictures = str(row.get("picture_num"))
    return {
        **{name: row.get(name) for name in ("name", "difficulty", "url")},
        "origin": row.get("source"),
        "tags": names_in(row.get("tags")),
        "skills": names_in(row.get("skill_types")),
        "contest_date": day_of(row.get("date")),
        "pictures": (int(pictures) if pictures.isdecimal() else 0) if "picture_num" in row else None,
        **{name: row.get(name) for name in ("time_limit", "memory_limit")},
    }
