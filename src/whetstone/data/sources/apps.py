"""APPS: programming problems of several sites, with solutions and tests as JSON in text columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from whetstone.data.sources.source import Row, Skip, Source, json_of, text_of
from whetstone.problem import CallCase, CallTests, Problem, Program, StdinCase, StdinTests, Tests


def _convert(row: Row, row_id: str) -> Iterator[Problem]:
    starter = text_of(row, "starter_code", default="")
    yield Problem(
        id=f"apps/{row_id}",
        statement=text_of(row, "question"),
        tests=_tests(json_of(row, "input_output"), starter),
        starter=starter or None,
        references=[Program("python", s) for s in json_of(row, "solutions", empty=[]) if isinstance(s, str)],
        source="apps",
        meta={
            "licence": SOURCE.licence,
            "difficulty": text_of(row, "difficulty", default=""),
            "url": text_of(row, "url", default=""),
        },
    )


def _tests(written: Any, starter: str) -> Tests:
    if not isinstance(written, dict):
        raise Skip("no_tests", "`input_output` is empty")
    inputs, outputs = written.get("inputs"), written.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise Skip("malformed_tests", "`inputs` and `outputs` are not two lists of one length")
    pairs = list(zip(cast(list[Any], inputs), cast(list[Any], outputs), strict=True))
    name = written.get("fn_name")
    if name is None:
        return StdinTests([StdinCase(_text(given), _text(expected)) for given, expected in pairs])
    if not isinstance(name, str) or not name.isidentifier():
        raise Skip("malformed_tests", f"`fn_name` is {name!r}, no name of a function")
    if not all(isinstance(given, list) for given, _ in pairs):
        raise Skip("malformed_tests", "an input of a called function is no list of arguments")
    # What a function returns is mostly written as a list of one element: in all tests of a problem or none.
    wrapped = all(isinstance(expected, list) and len(cast(list[Any], expected)) == 1 for _, expected in pairs)
    cases = [CallCase(expected=expected[0] if wrapped else expected, args=given) for given, expected in pairs]
    return CallTests(cases, function=name, class_="Solution" if "class Solution" in starter else None)


def _text(value: Any) -> str:
    """Text as it is; a list is the lines of the text."""
    if isinstance(value, list):
        return "".join(f"{line}\n" for line in cast(list[Any], value))
    if not isinstance(value, str):
        raise Skip("malformed_tests", f"a test of a program holds a {type(value).__name__}, not text")
    return value


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
