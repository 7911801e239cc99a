"""KodCode: questions, solutions and pytest tests that a model wrote."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from whetstone.core.problem import Problem, Program
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import DatasetSource, Row, text_of


def _convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    tests = pytest_tests(text_of(row, "test" if "test" in row else "test_code"))
    info = _info(row)
    entry_point = info.get("function_name")
    if isinstance(entry_point, str) and _defines(text_of(row, "solution"), entry_point):
        tests = msgspec.structs.replace(tests, entry_point=entry_point)
    declaration = info.get("function_declaration")
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=text_of(row, "question"),
        tests=tests,
        starter=f"{declaration}\n" if isinstance(declaration, str) and declaration.strip() else None,
        references=[Program("python", text_of(row, "solution"))],
        source=source.name,
        meta=known(
            licence=source.licence,
            difficulty=row.get("gpt_difficulty"),
            pass_rate=row.get("gpt_pass_percentage"),
            tags=[row[name] for name in ("style", "subset") if isinstance(row.get(name), str)],
        ),
    )


def _info(row: Row) -> dict[str, Any]:
    """Return the facts about the function under test; empty if there is not exactly one."""
    value = row.get("test_info")
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    first = items[0] if len(items) == 1 else None
    return cast("dict[str, Any]", first) if isinstance(first, dict) else {}


def _defines(code: str, name: str) -> bool:
    return name.isidentifier() and re.search(rf"^(?:def|class)\s+{name}\b", code, re.MULTILINE) is not None


SOURCE = DatasetSource(
    name="kodcode",
    title="KodCode: 447,000 questions with solutions and pytest tests that a model wrote",
    hub_id="KodCode/KodCode-V1",
    revision=None,
    files={"train": "data/train-*.parquet", "use_with_caution": "data/use_with_caution-*.parquet"},
    columns={
        "question_id": "the question's name",
        "question": "the statement, as text",
        "solution": "the reference, as text",
        "test or test_code": "pytest functions that import from `solution`, as text",
    },
    licence="CC-BY-NC-4.0",
    convert=_convert,
    id_columns=("question_id",),
    example="whetstone data prepare kodcode --split train --out sets/kodcode",
)
SOURCES = (SOURCE,)
