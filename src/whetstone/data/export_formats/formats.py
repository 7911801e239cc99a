"""The export formats: verl, PrimeIntellect, TRL and open-r1.

A comment before each one states which version was read, and how its scorer uses the columns.
"""

from __future__ import annotations

from typing import Any

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
    prompt_text,
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


# PrimeIntellect: rows as in verifiable-coding-problems and in the coding tasks of SYNTHETIC-1.
#
# ``verification_info`` is text: JSON of ``language`` and ``test_cases``. A case of type ``stdin_stdout`` has
# texts; one of type ``function_call`` has a list of arguments, the answer in a list of one, and its
# ``fn_name``. Read in ScaleBox 4bcfefd, whose recipe trains on these rows.
_PRIME_COLUMNS = (
    "problem_id", "task_type", "source", "in_source_id", "prompt", "gold_standard_solution",
    "verification_info", "metadata",
)  # fmt: skip


def _prime_row(problem: Problem, split: str, index: int) -> Row:
    info = {"language": problem.language, "test_cases": _prime_cases(problem)}
    gold = reference(problem)
    return {
        "problem_id": problem.id,
        "task_type": "verifiable_code",
        "source": problem.source,
        "in_source_id": str(problem.meta.get("original_id", "")) or None,
        "prompt": prompt_text(problem),
        "gold_standard_solution": f"```{problem.language}\n{gold.rstrip()}\n```" if gold else None,
        "verification_info": compact(info),
        "metadata": compact({"difficulty": problem.meta.get("difficulty")}),
    }


def _prime_cases(problem: Problem) -> list[dict[str, Any]]:
    if not isinstance(problem.tests, CallTests):
        texts = require_texts(problem)
        return [{"type": "stdin_stdout", "input": c.input, "output": c.output} for c in texts.cases]
    require_python(problem)
    calls = require_calls(problem)
    return [
        {"type": "function_call", "fn_name": calls.function, "input": case.args, "output": [case.expected]}
        for case in calls.cases
    ]


PRIME = ExportFormat(
    name="prime",
    title="PrimeIntellect's verifiable-coding-problems and SYNTHETIC-1",
    schema=dict.fromkeys(_PRIME_COLUMNS, "string"),
    row=_prime_row,
    carries="stdin tests compared as text, and calls of Python functions with positional arguments",
    way_out="leave them out with `whetstone data select --kinds stdin,call`, "
    "or write them with --export-format trl",
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


# open-r1: rows for its ``code_reward``, in the columns of open-r1/verifiable-coding-problems-python.
#
# Read in open-r1 0056faa. A Python program reads the ``input`` of a case, and its output is compared with
# ``output`` line by line. Missing and additional lines do not count. Functions are never called, so only
# stdin tests are written. ``prompt`` is text, the default of its ``dataset_prompt_column``.
_OPEN_R1_CASE = {"fn_name": "string", "input": "string", "output": "string", "type": "string"}
_OPEN_R1_SCHEMA: dict[str, ColumnType] = {
    "source": "string",
    "task_type": "string",
    "in_source_id": "string",
    "problem_statement": "string",
    "prompt": "string",
    "gold_standard_solution": "string",
    "problem_id": "string",
    "metadata": "string",
    "verification_info": {"language": "string", "test_cases": [_OPEN_R1_CASE]},
}


def _open_r1_row(problem: Problem, split: str, index: int) -> Row:
    require_python(problem)
    cases = [
        {"fn_name": None, "input": case.input, "output": case.output, "type": "stdin_stdout"}
        for case in require_texts(problem).cases
    ]
    return {
        "source": problem.source,
        "task_type": "verifiable_code",
        "in_source_id": str(problem.meta.get("original_id", "")) or None,
        "problem_statement": problem.statement,
        "prompt": prompt_text(problem),
        "gold_standard_solution": reference(problem) or None,
        "problem_id": problem.id,
        "metadata": compact({"difficulty": problem.meta.get("difficulty")}),
        "verification_info": {"language": problem.language, "test_cases": cases},
    }


OPEN_R1 = ExportFormat(
    name="open-r1",
    title="open-r1's code_reward, as in open-r1/verifiable-coding-problems-python",
    schema=_OPEN_R1_SCHEMA,
    row=_open_r1_row,
    carries="Python problems with stdin tests compared as text",
    way_out="leave them out with `whetstone data select --kinds stdin`, "
    "or write them with --export-format trl",
)
