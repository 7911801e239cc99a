"""APPS: programming problems of several sites, with solutions and tests as JSON in text columns."""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.data.sources.programs import references
from whetstone.data.sources.published import known
from whetstone.data.sources.source import Row, Source, json_of, text_of
from whetstone.data.sources.test_fields import read_tests
from whetstone.problem import Problem


def _convert(row: Row, own_id: str) -> Iterator[Problem]:
    starter = text_of(row, "starter_code", default="")
    programs, left_out = references(json_of(row, "solutions", empty=[]))
    yield Problem(
        id=f"apps/{own_id}",
        statement=text_of(row, "question"),
        tests=read_tests(
            text_of(row, "input_output"), starter=starter, programs=[program.source for program in programs]
        ),
        starter=starter or None,
        references=programs,
        source="apps",
        meta=known(
            licence=SOURCE.licence,
            difficulty=row.get("difficulty"),
            url=row.get("url"),
            references_left_out=left_out,
        ),
    )


SOURCE = Source(
    name="apps",
    title="APPS: 10,000 problems of Codeforces, AtCoder, Kattis, CodeChef and LeetCode",
    hub_id="codeparrot/apps",
    revision="21e74ddf8de1a21436da12e3e653065c5213e9d1",
    files={"train": "train.jsonl", "test": "test.jsonl"},
    columns={
        "problem_id or id": "the problem's number",
        "question": "the statement, as text",
        "solutions": "a list of programs, as JSON in text",
        "input_output": "an object with `inputs`, `outputs` and perhaps `fn_name`, as JSON in text",
    },
    licence="MIT",
    convert=_convert,
    id_columns=("problem_id", "id"),  # the files say `id`; the dataset's own loader renames it
    example="whetstone data prepare apps --split train --out sets/apps",
)
SOURCES = (SOURCE,)
