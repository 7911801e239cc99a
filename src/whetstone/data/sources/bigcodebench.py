"""BigCodeBench: functions that use many libraries, judged by ``unittest``; the whole set and its hard part.

Zhuo et al. 2024, arXiv 2406.15877. Tests and programs need the libraries in ``meta["libs"]``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Limits, Problem, Program
from whetstone.core.syntax import parse_expression
from whetstone.data.sources.source import DatasetSource, Row, text_of

# Limits for all unit tests of a problem, including the import of its libraries.
LIMITS = Limits(cpu_s=30.0, memory_mb=2048.0)


def _convert(source: DatasetSource, row: Row, own_id: str) -> Iterator[Problem]:
    prompt = text_of(row, "complete_prompt")
    entry_point = text_of(row, "entry_point")
    yield Problem(
        id=f"{source.name}/{own_id.rpartition('/')[2]}",
        statement=text_of(row, "instruct_prompt"),
        starter=prompt,
        tests=AssertTests(unittest=text_of(row, "test"), entry_point=entry_point),
        limits=LIMITS,
        references=[Program("python", prompt + text_of(row, "canonical_solution"))],
        source=source.name,
        meta={"licence": source.licence, "task_id": own_id, "libs": _libs(row), COMPLETES_STARTER: True},
    )


def _libs(row: Row) -> list[str]:
    """Return the libraries, which the files store as the text of a Python list."""
    written = row.get("libs")
    try:
        value = ast.literal_eval(parse_expression(written)) if isinstance(written, str) else written
    except (ValueError, TypeError):
        value = None
    return sorted(str(lib) for lib in value) if isinstance(value, list) else []


def _source(name: str, title: str, hub_id: str, revision: str | None) -> DatasetSource:
    return DatasetSource(
        name=name,
        title=title,
        hub_id=hub_id,
        revision=revision,
        files={"v0.1.4": "data/v0.1.4-*.parquet"},
        columns={
            "task_id": "BigCodeBench/N",
            "complete_prompt": "imports, and the function up to its docstring, as text",
            "instruct_prompt": "the task in natural language, as text",
            "canonical_solution": "the function's body, as text",
            "test": "unittest classes, as text",
            "entry_point": "the function's name",
        },
        licence="Apache-2.0",
        convert=_convert,
        id_columns=("task_id",),
    )


SOURCES = (
    _source(
        "bigcodebench",
        "BigCodeBench: 1,140 functions that use many libraries",
        "bigcode/bigcodebench",
        "b74c0d0bf70d2c0bc459be537895cca163007f1a",
    ),
    _source(
        "bigcodebench-hard",
        "BigCodeBench-Hard: 148 functions that use many libraries",
        "bigcode/bigcodebench-hard",
        "298d2cc7b96612e15e47313c3603ee124cee0c1f",
    ),
)
