"""The export formats: verl and TRL.

A comment before each one states which version was read, and how its scorer uses the columns.
"""

from __future__ import annotations

from whetstone.core.problem import CallTests, Problem
from whetstone.data.export_formats.export_format import (
    CHAT,
    ColumnType,
    ExportFormat,
    NotRepresentable,
    Row,
    chat,
    compact,
    problem_json,
    reference,
    require_calls,
    require_python,
    require_texts,
)

# verl: the rows of its RLHFDataset, with tests for its scorer ``prime_code``.
#
# Read in verl b178a3c and 0.9.1. ``prompt`` is a chat. ``reward_model.ground_truth`` is JSON of ``inputs``
# and ``outputs``; for calls also of ``fn_name``, with one JSON value a line. verl selects the scorer by
# ``data_source``: ``prime_code``, or SandboxFusion if configured, serves the four names below. It scores the
# first ten cases. It reads neither the limits of a problem nor its comparison.
# The `data_source` of rows whose ground truth is the whole problem. No scorer of verl accepts it.
WHOLE = "whetstone"

_SCORED_SOURCES = ("codecontests", "codeforces", "apps", "taco")
_VERL_SCHEMA: dict[str, ColumnType] = {
    "data_source": "string",
    "prompt": CHAT,
    "ability": "string",
    "reward_model": {"style": "string", "ground_truth": "string"},
    "extra_info": {"split": "string", "index": "int64", "id": "string", "reference": "string"},
}


def _verl_row(problem: Problem, split: str, index: int) -> Row:
    require_python(problem)
    plain = problem.source.replace("_", "").replace("-", "")
    data_source = next((name for name in _SCORED_SOURCES if name in plain), "codecontests")
    return _row_of(problem, split, index, data_source, _verl_ground_truth(problem))


def _verl_whole_row(problem: Problem, split: str, index: int) -> Row:
    return _row_of(problem, split, index, WHOLE, problem_json(problem))


def _row_of(problem: Problem, split: str, index: int, data_source: str, ground_truth: str) -> Row:
    return {
        "data_source": data_source,
        "prompt": chat(problem),
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": index, "id": problem.id, "reference": reference(problem)},
    }


def _verl_ground_truth(problem: Problem) -> str:
    if not isinstance(problem.tests, CallTests):
        texts = require_texts(problem)
        inputs, outputs = [case.input for case in texts.cases], [case.output for case in texts.cases]
        return compact({"inputs": inputs, "outputs": outputs})
    calls = require_calls(problem)
    if any(not case.args for case in calls.cases):
        raise NotRepresentable("calls without arguments")
    inputs = ["\n".join(map(compact, case.args)) for case in calls.cases]
    outputs = [compact(case.expected) for case in calls.cases]
    return compact({"inputs": inputs, "outputs": outputs, "fn_name": calls.function})


VERL = ExportFormat(
    name="verl",
    title="verl's RLHFDataset, scored by its prime_code",
    schema=_VERL_SCHEMA,
    row=_verl_row,
    carries="Python problems: stdin tests compared as text, and calls with positional arguments",
    way_out="write them with --export-format verl-whole and a reward function that calls whetstone's judge",
)

VERL_WHOLE = ExportFormat(
    name="verl-whole",
    title="verl's RLHFDataset, the ground truth being the whole problem, for a reward function of your own",
    schema=_VERL_SCHEMA,
    row=_verl_whole_row,
    carries="everything",
    way_out="",
)


# TRL: a chat in ``prompt``, and the whole problem in ``problem`` for reward functions.
#
# GRPOTrainer and RLOOTrainer (read in TRL 1.16.0) pass every other column to each reward function, as a list
# under the column's name. So a reward function is a few lines around Whetstone's judge (see docs/data.md). It
# returns None if the judge failed, which removes a reply from the mean instead of scoring it 0.
def _trl_row(problem: Problem, split: str, index: int) -> Row:
    return {
        "prompt": chat(problem),
        "id": problem.id,
        "source": problem.source,
        "problem": problem_json(problem),
    }


TRL = ExportFormat(
    name="trl",
    title="TRL's GRPOTrainer, the whole problem in a column for the reward function",
    schema={"prompt": CHAT, "id": "string", "source": "string", "problem": "string"},
    row=_trl_row,
    carries="everything",
    way_out="",
)
