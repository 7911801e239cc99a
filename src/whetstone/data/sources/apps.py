"""APPS, and TACO with the same columns: problems of several sites, with tests as JSON in text.

The part of TACO that likaixin verified is a separate source. Its problems have many solutions each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from whetstone.core.problem import Problem
from whetstone.data.sources.row_problem import limits_of, names_in, row_problem
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, json_of, text_of


def _apps(source: DatasetSource, row: Row, own_id: str) -> Iterator[Problem]:
    yield row_problem(
        source,
        own_id,
        starter=text_of(row, "starter_code", default=""),
        solutions=json_of(row, "solutions", empty=[]),
        statement=text_of(row, "question"),
        tests=text_of(row, "input_output"),
        facts={name: row.get(name) for name in ("difficulty", "url")},
    )


def _taco(source: DatasetSource, row: Row, own_id: str) -> Iterator[Problem]:
    yield row_problem(
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
        "contest_date": _day(row.get("date")),
        "pictures": int(pictures) if isinstance(pictures, str | int) and str(pictures).isdecimal() else 0,
        **{name: row.get(name) for name in ("time_limit", "memory_limit")},
    }


def _day(value: Any) -> str | None:
    """Return a date of ten characters; None for other values."""
    try:
        return date.fromisoformat(str(value)[:10]).isoformat()
    except ValueError:
        return None


_QUESTION = {"question": "the statement, as text"}
_TESTS = {"input_output": "an object with `inputs`, `outputs` and perhaps `fn_name`, as JSON in text"}
_TACO_COLUMNS = {**_QUESTION, "solutions": "a list of programs, or one as JSON in text", **_TESTS}
SOURCES = (
    DatasetSource(
        name="apps",
        title="APPS: 10,000 problems of Codeforces, AtCoder, Kattis, CodeChef and LeetCode",
        hub_id="codeparrot/apps",
        revision="21e74ddf8de1a21436da12e3e653065c5213e9d1",
        files={"train": "train.jsonl", "test": "test.jsonl"},
        columns={
            "problem_id or id": "the problem's number",
            **_QUESTION,
            "solutions": "a list of programs, as JSON in text",
            **_TESTS,
        },
        licence="MIT",
        convert=_apps,
        # The files name the column `id`, and the dataset's own loader renames it.
        id_columns=("problem_id", "id"),
        example="whetstone data prepare apps --split train --out sets/apps",
    ),
    DatasetSource(
        name="taco",
        title="TACO: 26,443 problems of nine sites, their solutions not verified",
        hub_id="BAAI/TACO",
        revision="fc626850cb2d0a4fe1b521706f94bf2582f58931",
        files={"train": "train/data-*.arrow", "test": "test/data-*.arrow"},
        columns=_TACO_COLUMNS,
        licence="Apache-2.0, parts CC-BY-SA, CC-BY, MIT",
        convert=_taco,
        # TACO itself has no ids.
        id_columns=("id",),
    ),
    DatasetSource(
        name="taco-verified",
        title="TACO-verified: 12,898 problems of TACO whose solutions pass their tests",
        hub_id="likaixin/TACO-verified",
        revision="fb28010",
        files={"train": "taco_verified.json"},
        columns=_TACO_COLUMNS,
        licence="MIT",
        convert=_taco,
        id_columns=("id",),
    ),
)
