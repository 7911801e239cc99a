"""Write a set in an export format: one Parquet file, or one for each split of a dataset folder.

The formats are those of verl and TRL: columns of their data files, and the problems that their judges score.

A problem that the other judge would score by other rules is never written silently. It raises
``NotRepresentable``, and is counted. A comment before each format states which version was read, and how its
scorer uses the columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.outputs import replacing
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    StdinTests,
    statement_with_starter,
)
from whetstone.core.settings import checked
from whetstone.data.dataset import SPLITS, is_dataset, open_problems
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
    row=lambda problem, split, index: _row_of(problem, split, index, WHOLE, _problem_json(problem)),
    carries="everything",
    way_out="",
)


# TRL: a chat in ``prompt``, and the whole problem in ``problem`` for reward functions.
#
# GRPOTrainer and RLOOTrainer (read in TRL 1.16.0) pass every other column to each reward function, as a list
# under the column's name. So a reward function is a few lines around Whetstone's judge (see docs/data.md). It
# returns None if the judge failed, which removes a reply from the mean instead of scoring it 0.
TRL = ExportFormat(
    name="trl",
    title="TRL's GRPOTrainer, the whole problem in a column for the reward function",
    schema={"prompt": _CHAT, "id": "string", "source": "string", "problem": "string"},
    row=lambda problem, _split, _index: {
        "prompt": _chat(problem),
        "id": problem.id,
        "source": problem.source,
        "problem": _problem_json(problem),
    },
    carries="everything",
    way_out="",
)


EXPORT_FORMATS = {export_format.name: export_format for export_format in (VERL, VERL_WHOLE, TRL)}

_ROWS = 256


class _ExportSummary(Struct, frozen=True):
    """The rows of each file, and the problems that were left out, by reason."""

    files: dict[str, int]
    left_out: dict[str, int]


def export_format_named(name: str) -> ExportFormat:
    """Return an export format. Raises UserError for an unknown name."""
    if name not in EXPORT_FORMATS:
        known = ", ".join(EXPORT_FORMATS)
        raise UserError(f"no export format `{name}`{did_you_mean(name, EXPORT_FORMATS)} (known: {known})")
    return EXPORT_FORMATS[name]


ExportFormatName = Annotated[str, checked(export_format_named)]


def write_export(
    source: str, target: Path, export_format: ExportFormat, *, skip: bool = False
) -> _ExportSummary:
    """Write the set ``source`` to ``target``: a .parquet file, or a folder with a file for each split.

    If the format cannot represent a problem, nothing is written, and an error counts all such problems by
    reason. With ``skip`` they are left out and counted. Raises UserError.
    """
    left_out: Counter[str] = Counter()
    counts: dict[str, int] = {}
    files = export_files(source, target)
    # This reads the set twice, so that nothing is written before an error.
    if not skip:
        _require_all(source, export_format)
    for split, file in files.items():
        part = f"{source}:{split}" if is_dataset(source) else source
        with replacing(file) as temporary:
            counts[str(file)] = _write(
                temporary, export_format, _rows(open_problems(part), export_format, split, left_out)
            )
    return _ExportSummary(counts, dict(left_out))


def export_files(source: str, target: Path) -> dict[str, Path]:
    """Return the file of each split. Raises UserError for several splits and one file."""
    splits = SPLITS if is_dataset(source) else ("train",)
    if target.suffix != ".parquet":
        return {split: target / f"{split}.parquet" for split in splits}
    if len(splits) > 1:
        raise UserError(f"{target}: {source} has splits; name a folder, or one split: {source}:train")
    return {"train": target}


def _require_all(source: str, export_format: ExportFormat) -> None:
    refused: Counter[str] = Counter()
    for _ in _rows(open_problems(source), export_format, "train", refused):
        pass
    if refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refused.most_common())
        raise UserError(
            f"{source}: the export format {export_format.name} cannot carry {sum(refused.values())} problems "
            f"({reasons}); it carries {export_format.carries}. Leave them out with --skip, "
            f"or {export_format.way_out}"
        )


def _rows(
    problems: Iterable[Problem], export_format: ExportFormat, split: str, refused: Counter[str]
) -> Iterator[Row]:
    index = 0
    for problem in problems:
        try:
            yield export_format.row(problem, split, index)
            index += 1
        except NotRepresentable as reason:
            refused[str(reason)] += 1


def _write(file: Path, export_format: ExportFormat, rows: Iterator[Row]) -> int:
    from whetstone.core.parquet import pa, pq

    schema = pa.schema({name: _arrow_type(kind) for name, kind in export_format.schema.items()})
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[Row] = []
        for row in rows:
            batch.append(row)
            count += 1
            if len(batch) == _ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    return count


def _arrow_type(kind: ColumnType) -> Any:
    from whetstone.core.parquet import pa

    if isinstance(kind, str):
        return pa.type_for_alias(kind)
    if isinstance(kind, list):
        return pa.list_(_arrow_type(kind[0]))
    return pa.struct({name: _arrow_type(field) for name, field in kind.items()})
