"""SYNTHETIC-1: replies of a model to PrimeIntellect's tasks; its coding problems, each once.

A row is one reply, so a problem comes many times: its first row counts, and the others are named as
duplicates. The replies are not used.
"""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.data.sources.primeintellect import problem_of
from whetstone.data.sources.source import Row, Skip, Source, text_of
from whetstone.problem import Problem

_LICENCE = "Apache-2.0"


def _convert(row: Row, own_id: str) -> Iterator[Problem]:
    task = text_of(row, "task_type")
    if task != "verifiable_code":
        raise Skip("not_code", f"a task of the type {task}")
    yield problem_of("synthetic-1", _LICENCE, row, own_id)


SOURCES = (
    Source(
        name="synthetic-1",
        title="SYNTHETIC-1: the coding problems of its 1.99 million rows",
        hub_id="PrimeIntellect/SYNTHETIC-1",
        revision="f08fe8c",
        files={"train": "data/train-*.parquet"},
        columns={
            "task_type": "the kind of task, `verifiable_code` for a coding problem",
            "prompt": "the statement, as text",
            "gold_standard_solution": "a program, in a Markdown fence",
            "verification_info": "an object with `language` and `test_cases`, as Python or JSON in text",
            "problem_id": "the problem's id, as text",
        },
        licence=_LICENCE,
        convert=_convert,
        id_columns=("problem_id",),
        example="whetstone data prepare synthetic-1 --out sets/synthetic-1",
    ),
)
