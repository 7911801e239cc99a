"""BigCodeBench: functions that use many libraries, judged by ``unittest``; the whole set and its hard part.

Zhuo et al. 2024, arXiv 2406.15877. Tests and programs need the libraries in ``meta["libs"]``.
"""

from __future__ import annotations

import ast

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Limits, Problem, Program
from whetstone.core.syntax import parse_expression
from whetstone.data.sources.source import DatasetSource, Row, text_of

# Limits for all unit tests of a problem, including the import of its libraries.
LIMITS = Limits(cpu_s=30.0, memory_mb=2048.0)


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of BigCodeBench."""
    prompt = text_of(row, "complete_prompt")
    entry_point = text_of(row, "entry_point")
    return Problem(
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
