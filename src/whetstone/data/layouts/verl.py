"""verl: the rows of its RLHFDataset, with tests for the scorer ``prime_code`` that comes with it.

Read in verl b178a3c and 0.9.1. ``prompt`` is a chat; ``reward_model.ground_truth`` is JSON of ``inputs`` and
``outputs``, and of ``fn_name`` where a function is called, one JSON value a line. verl picks the scorer by
``data_source``: ``prime_code`` (or SandboxFusion, where one is configured) serves the four names below. It
scores the first ten cases. A problem's limits, and how its texts are compared, are not among what it reads.
"""

from __future__ import annotations

import pyarrow as pa

from whetstone.data.layouts.layout import (
    CHAT,
    CannotCarry,
    Layout,
    Row,
    chat,
    compact,
    reference,
    require_calls,
    require_python,
    require_texts,
    whole,
)
from whetstone.problem import CallTests, Problem

WHOLE = "whetstone"
"""The ``data_source`` of rows whose ground truth is the whole problem: no scorer of verl's takes it."""

_SCORED = ("codecontests", "codeforces", "apps", "taco")
_SCHEMA = pa.schema({
    "data_source": pa.string(),
    "prompt": CHAT,
    "ability": pa.string(),
    "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
    "extra_info": pa.struct({
        "split": pa.string(), "index": pa.int64(), "id": pa.string(), "reference": pa.string(),
    }),
})  # fmt: skip


def _row(problem: Problem, split: str, index: int) -> Row:
    require_python(problem)
    return _filled(problem, split, index, _data_source(problem), _ground_truth(problem))


def _whole_row(problem: Problem, split: str, index: int) -> Row:
    return _filled(problem, split, index, WHOLE, whole(problem))


def _filled(problem: Problem, split: str, index: int, data_source: str, ground_truth: str) -> Row:
    return {
        "data_source": data_source,
        "prompt": chat(problem),
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": index, "id": problem.id, "reference": reference(problem)},
    }


def _ground_truth(problem: Problem) -> str:
    if not isinstance(problem.tests, CallTests):
        texts = require_texts(problem)
        inputs, outputs = [case.input for case in texts.cases], [case.output for case in texts.cases]
        return compact({"inputs": inputs, "outputs": outputs})
    calls = require_calls(problem)
    if any(not case.args for case in calls.cases):
        raise CannotCarry("calls without arguments")
    inputs = ["\n".join(map(compact, case.args)) for case in calls.cases]
    outputs = [compact(case.expected) for case in calls.cases]
    return compact({"inputs": inputs, "outputs": outputs, "fn_name": calls.function})


def _data_source(problem: Problem) -> str:
    plain = problem.source.replace("_", "").replace("-", "")
    return next((name for name in _SCORED if name in plain), "codecontests")


VERL = Layout(
    name="verl",
    title="verl's RLHFDataset, scored by its prime_code",
    schema=_SCHEMA,
    row=_row,
    carries="Python problems: stdin tests compared as text, and calls with positional arguments",
    way_out="write them with --layout verl-whole and a reward function that asks whetstone's judge",
)

VERL_WHOLE = Layout(
    name="verl-whole",
    title="verl's RLHFDataset, the ground truth being the whole problem, for a reward function of your own",
    schema=_SCHEMA,
    row=_whole_row,
    carries="everything",
    way_out="",
)
