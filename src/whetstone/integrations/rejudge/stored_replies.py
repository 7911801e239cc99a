"""Reads the replies that a trainer stored, with their rewards: runs of Whetstone, and dumps of TRL and verl.

- A run of Whetstone: ``rollouts/step-*.parquet``.
- TRL with ``log_completions=True``: ``completions/completions_*.parquet``, with a column for each reward
  function.
- verl with ``trainer.rollout_data_dir``: ``STEP.jsonl``, with the fields input, output, gts, score and step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.integrations.rows import problem_of, reply_text
from whetstone.report.rollouts import read_rollouts, rollout_files, rollout_steps, with_groups

# Columns of a TRL dump that are no rewards. Further ones may be what a reward function logs.
_TRL_COLUMNS = frozenset({"step", "prompt", "completion", "advantage"})
_VERL_FIELDS = ("input", "output", "score")


class StoredReply(Struct, frozen=True):
    """One reply.

    group: its group within the step. problem: None if it is not known. verdict: the stored one, or empty.
    obstacle: why it cannot be judged again, or empty.
    """

    step: int
    group: int
    problem_id: str
    problem: Problem | None
    reply: str
    reward: float | None
    verdict: str = ""
    obstacle: str = ""


class ProblemIndex:
    """Finds the problem of a stored reply: by its id, its whole text, or its statement in the prompt."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._by_id = {problem.id: problem for problem in problems}
        # The longest statement first: a short one may be a part of another problem's.
        found = ((problem.statement.strip(), problem) for problem in self._by_id.values())
        self._statements = sorted(((text, p) for text, p in found if text), key=lambda pair: -len(pair[0]))
        self._of_prompt: dict[str, Problem | None] = {}

    def by_id(self, problem_id: str) -> Problem | None:
        """Return the problem with this id."""
        return self._by_id.get(problem_id)

    def of_row(self, truth: object, prompt: str) -> Problem | None:
        """Return the problem of a row: ``truth`` if it is a whole problem, else the one in ``prompt``."""
        if isinstance(truth, str) and truth.lstrip().startswith("{"):
            try:
                return problem_of(truth)
            except UserError:
                pass
        if prompt not in self._of_prompt:
            matches = (problem for text, problem in self._statements if text in prompt)
            self._of_prompt[prompt] = next(matches, None)
        return self._of_prompt[prompt]


def stored_steps(source: Path) -> dict[int, Path]:
    """Return the steps of a run or a dump, in ascending order, and their files.

    Raises UserError if ``source`` is none of these folders.
    """
    if files := rollout_files(source):
        return dict(zip(rollout_steps(source), files, strict=True))
    folder = source / "completions" if (source / "completions").is_dir() else source
    found = _numbered(folder, "completions_", ".parquet") or _numbered(source, "", ".jsonl")
    if not found:
        raise UserError(
            f"{source}: no stored replies; give the folder of a Whetstone run (with rollouts/), the output "
            "folder of a TRL run with log_completions=True, or verl's `trainer.rollout_data_dir`"
        )
    return dict(sorted(found.items()))


def _numbered(folder: Path, prefix: str, suffix: str) -> dict[int, Path]:
    """Return the files that have only a number between ``prefix`` and ``suffix``, by this number."""
    numbers = ((path.stem.removeprefix(prefix), path) for path in folder.glob(f"{prefix}*{suffix}"))
    return {int(number): path for number, path in numbers if number.isdigit()}


def read_replies(
    source: Path, step: int, path: Path, problems: ProblemIndex, column: str
) -> list[StoredReply]:
    """Return the replies of a step, from one of ``stored_steps``. ``column``: the reward of TRL's dump, empty
    for the only one.

    Raises UserError for a damaged file.
    """
    if path.name.startswith("step-"):
        return list(_from_run(source, step, problems))
    try:
        rows = _trl_rows(path, column) if path.suffix == ".parquet" else list(_verl_rows(path))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read as stored replies ({error})") from None
    return list(_from_rows(step, rows, problems))


def _from_run(source: Path, step: int, problems: ProblemIndex) -> Iterator[StoredReply]:
    for row in with_groups(read_rollouts(source, step)):
        rollout = row.rollout
        obstacle = ""
        if rollout.dialogue:
            obstacle = "several turns"
        elif rollout.finish_reason in ("abort", "failed"):
            obstacle = "not sampled to its end"
        yield StoredReply(
            step,
            row.group,
            rollout.problem_id,
            problems.by_id(rollout.problem_id),
            rollout.reply,
            rollout.reward,
            rollout.verdict.value if rollout.verdict else "",
            obstacle,
        )


class _Row(Struct, frozen=True):
    """A row of another trainer's dump. ``truth``: what the reward function got to compare with."""

    prompt: str
    reply: str
    reward: float | None
    truth: object


def _from_rows(step: int, rows: Sequence[_Row], problems: ProblemIndex) -> Iterator[StoredReply]:
    # Replies to one prompt are neighbours, as in a batch.
    for group, (_, same) in enumerate(groupby(rows, key=lambda row: row.prompt)):
        for row in same:
            problem = problems.of_row(row.truth, row.prompt)
            name = problem.id if problem else row.prompt.strip()[:60]
            yield StoredReply(step, group, name, problem, row.reply, row.reward)


def _trl_rows(path: Path, column: str) -> list[_Row]:
    table = pq.read_table(path, use_threads=False)
    names = cast("list[str]", table.column_names)
    numbers = [
        name
        for name in names
        if name not in _TRL_COLUMNS and pa.types.is_floating(table.schema.field(name).type)
    ]
    chosen = [column] if column else numbers
    if missing := [name for name in ("prompt", "completion", *chosen) if name not in names]:
        raise UserError(f"{path}: no column {missing[0]!r}; it has {', '.join(names)}")
    if len(chosen) != 1:
        listed = ", ".join(numbers) or "none"
        raise UserError(f"{path}: the columns of rewards are {listed}; choose one with --reward-column")
    rows = cast("list[dict[str, Any]]", table.to_pylist())
    return [
        _Row(
            _text(row["prompt"]),
            reply_text(row["completion"]),
            _number(row[chosen[0]]),
            row.get("problem", row.get("ground_truth")),
        )
        for row in rows
    ]


def _verl_rows(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        row: Any = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no object")
        fields = cast("dict[str, Any]", row)
        if missing := [name for name in _VERL_FIELDS if name not in fields]:
            raise ValueError(f"line {number} has no field {missing[0]!r}")
        yield _Row(
            _text(fields["input"]), reply_text(fields["output"]), _number(fields["score"]), fields.get("gts")
        )


def _text(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return a prompt as one text: a string, or messages."""
    return prompt if isinstance(prompt, str) else "\n".join(reply_text(message) for message in prompt)


def _number(value: object) -> float | None:
    # TRL writes NaN where a reward function returned None.
    return float(value) if isinstance(value, int | float) and value == value else None
