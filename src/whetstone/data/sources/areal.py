"""AReaL-boba-2-RL-Code: DeepCoder's problems after AReaL's filters, and four benchmarks in its layout.

Arguments of functions are JSON values, one a line; ``fn_name`` is empty for a program that reads its input.
The training prompts carry the marks of a chat template, the benchmarks a plain ``question``.
"""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import references, shown_code
from whetstone.data.sources.published import known
from whetstone.data.sources.source import Row, Skip, Source, dict_of, list_of, text_of
from whetstone.data.sources.test_fields import read_tests
from whetstone.problem import CallTests, Problem

_NAME = "areal"
_LICENCE = "Apache-2.0"
_MARKS = (
    *(
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<|im_start|>user",
        "<|im_start|>assistant",
    ),
    *("<|im_end|>", "<think>", "/think"),
)


def _convert(row: Row, own_id: str) -> Iterator[Problem]:
    task = text_of(row, "task", default="code")
    if task != "code":
        raise Skip("not_code", f"a task of the kind {task}")
    statement = without_marks(text_of(row, "question" if row.get("question") else "prompt"))
    starter = shown_code(statement)
    programs, left_out = references(list_of(row, "solutions", default=[]))
    function = dict_of(row, "metadata", default={}).get("fn_name")
    tests = read_tests(
        unpack(text_of(row, "input_output"), "input_output"),
        function=function or None,
        starter=starter,
        programs=[program.source for program in programs],
    )
    yield Problem(
        id=f"{_NAME}/{own_id}",
        statement=statement,
        tests=tests,
        starter=starter if isinstance(tests, CallTests) and starter else None,
        references=programs,
        source=_NAME,
        meta=known(licence=_LICENCE, references_left_out=left_out),
    )


def without_marks(prompt: str) -> str:
    """A prompt without the marks of a chat template at its ends."""
    text = prompt.strip()
    while True:
        before = text
        for mark in _MARKS:
            text = text.removeprefix(mark).removesuffix(mark).strip()
        if text == before:
            return text


_BENCHMARKS = ("lcb_v5", "lcb_v5_2410_2502", "codeforces", "code_contest_all")
SOURCES = (
    Source(
        name=_NAME,
        title="AReaL-boba-2-RL-Code: about 7,600 filtered problems of DeepCoder, and benchmarks",
        hub_id="inclusionAI/AReaL-boba-2-RL-Code",
        revision="3aa8916",
        files={"train": "train/train.jsonl"}
        | {name: f"code_benchmark/{name}/test.jsonl" for name in _BENCHMARKS},
        columns={
            "prompt or question": "the statement, as text",
            "input_output": "an object with `inputs`, `outputs` and perhaps `fn_name`, as JSON in text",
        },
        licence=_LICENCE,
        convert=_convert,
        id_columns=("query_id",),
        example="whetstone data prepare areal --split train --out sets/areal",
    ),
)
