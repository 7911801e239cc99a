"""The export formats, verl and TRL: columns of their data files, and the problems that their judges score.

A problem that the other judge would score by other rules is never written silently. It raises
``NotRepresentable``, and is counted. A comment before each format states which version was read, and how its
scorer uses the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    StdinTests,
    statement_with_starter,
)
from whetstone.judge.instruction import instruction

Row = dict[str, Any]

ColumnType = str | list[Any] | dict[str, Any]
"""A type of Arrow: its name, a list with the type of the items, or the types of a structure's fields."""

# Messages of a chat.
_CHAT: ColumnType = [{"role": "string", "content": "string"}]


class NotRepresentable(Exception):
    """An export format cannot represent a problem, or its judge cannot score the tests. The message is the
    reason."""


class ExportFormat(Struct, frozen=True):
    """Columns, and a function from a problem to a row.

    ``row`` gets the problem, the name of its split and its number in it. It raises NotRepresentable.
    ``carries`` describes the problems that it accepts, ``way_out`` the remedy for the others.
    """

    name: str
    title: str
    schema: Mapping[str, ColumnType]
    row: Callable[[Problem, str, int], Row]
    carries: str
    way_out: str


def prompt_text(problem: Problem) -> str:
    """Return the prompt that a run of Whetstone would use by default."""
    return f"{statement_with_starter(problem)}\n\n{instruction(problem)}".rstrip("\n")


def _chat(problem: Problem) -> list[dict[str, str]]:
    """Return the prompt as a user's message."""
    return [{"role": "user", "content": prompt_text(problem)}]


def _reference(problem: Problem) -> str:
    """Return the first reference in the problem's language; empty if there is none."""
    return next((p.source for p in problem.references if p.language == problem.language), "")


def _problem_json(problem: Problem) -> str:
    """Return the problem in the published schema, as JSON, for a reward function that uses
    Whetstone's judge."""
    return msgspec.json.encode(problem).decode()


def _require_texts(problem: Problem) -> StdinTests:
    """Return the tests of a problem whose output is compared as text. Raises NotRepresentable."""
    tests = problem.tests
    if not isinstance(tests, StdinTests):
        raise NotRepresentable(f"{_kind(problem)} tests")
    if problem.checker is not None:
        raise NotRepresentable("a checker decides")
    if problem.compare.mode not in ("tokens", "lines", "grader:lcb"):
        raise NotRepresentable(f"compare mode {problem.compare.mode}")
    return tests


def _require_calls(problem: Problem) -> CallTests:
    """Return the tests of a problem that calls a function with positional arguments. Raises
    NotRepresentable."""
    tests = problem.tests
    if not isinstance(tests, CallTests):
        raise NotRepresentable(f"{_kind(problem)} tests")
    if tests.function is None:
        raise NotRepresentable("operations on an object")
    if tests.class_ not in (None, "Solution"):
        raise NotRepresentable("methods of a class that is not called Solution")
    if any(case.kwargs for case in tests.cases):
        raise NotRepresentable("keyword arguments")
    if problem.checker is not None:
        raise NotRepresentable("a checker decides")
    if problem.compare.mode == "values":
        raise NotRepresentable("compare mode values")
    if tests.result or tests.nodes:
        raise NotRepresentable("results in arguments, linked lists and trees")
    return tests


def _compact(value: Any) -> str:
    """Encode a value as JSON in one line, as Python's ``json`` spells it, which other readers expect."""
    return json.dumps(value, ensure_ascii=False)


def _kind(problem: Problem) -> str:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return "assert"
    return "interactive" if isinstance(tests, InteractiveTests) else str(tests.__struct_config__.tag)


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
    "prompt": _CHAT,
    "ability": "string",
    "reward_model": {"style": "string", "ground_truth": "string"},
    "extra_info": {"split": "string", "index": "int64", "id": "string", "reference": "string"},
}


def _verl_row(problem: Problem, split: str, index: int) -> Row:
    if problem.language != "python":
        raise NotRepresentable(f"programs in {problem.language}")
    plain = problem.source.replace("_", "").replace("-", "")
    data_source = next((name for name in _SCORED_SOURCES if name in plain), "codecontests")
    return _row_of(problem, split, index, data_source, _verl_ground_truth(problem))


def _verl_whole_row(problem: Problem, split: str, index: int) -> Row:
    return _row_of(problem, split, index, WHOLE, _problem_json(problem))


def _row_of(problem: Problem, split: str, index: int, data_source: str, ground_truth: str) -> Row:
    return {
        "data_source": data_source,
        "prompt": _chat(problem),
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": index, "id": problem.id, "reference": _reference(problem)},
    }


def _verl_ground_truth(problem: Problem) -> str:
    if not isinstance(problem.tests, CallTests):
        texts = _require_texts(problem)
        inputs, outputs = [case.input for case in texts.cases], [case.output for case in texts.cases]
        return _compact({"inputs": inputs, "outputs": outputs})
    calls = _require_calls(problem)
    if any(not case.args for case in calls.cases):
        raise NotRepresentable("calls without arguments")
    inputs = ["\n".join(map(_compact, case.args)) for case in calls.cases]
    outputs = [_compact(case.expected) for case in calls.cases]
    return _compact({"inputs": inputs, "outputs": outputs, "fn_name": calls.function})


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
        "prompt": _chat(problem),
        "id": problem.id,
        "source": problem.source,
        "problem": _problem_json(problem),
    }


TRL = ExportFormat(
    name="trl",
    title="TRL's GRPOTrainer, the whole problem in a column for the reward function",
    schema={"prompt": _CHAT, "id": "string", "source": "string", "problem": "string"},
    row=_trl_row,
    carries="everything",
    way_out="",
)
