"""Reads the replies that a trainer stored, with their rewards: runs of Whetstone, and dumps of TRL and verl.

- A run of Whetstone: ``rollouts/step-*.parquet``.
- TRL with ``log_completions=True``: ``completions/completions_*.parquet``, with a column for each reward
  function.
- verl with ``trainer.rollout_data_dir``: ``STEP.jsonl``, with the fields input, output, gts, score and step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.parquet import pa, pq
from whetstone.core.problem import Problem
from whetstone.core.sample import finite_number
from whetstone.integrations.rows import problem_of, read_integer, reply_text
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
        by_statement: dict[str, list[Problem]] = {}
        for problem in self._by_id.values():
            by_statement.setdefault(problem.statement.strip(), []).append(problem)
        # The longest statement first: a short one may be a part of another problem's.
        self._statements = sorted(by_statement.items(), key=lambda pair: -len(pair[0]))
        self._of_prompt: dict[str, Problem | None] = {}
        self._of_rows: dict[str, Problem] = {}

    def by_id(self, problem_id: str) -> Problem | None:
        """Return the problem with this id."""
        return self._by_id.get(problem_id)

    def of_row(self, truth: object, prompt: str) -> Problem | None:
        """Return the problem of a row: ``truth`` if it is a whole problem, else the one in ``prompt``.

        None if there is none, or several have the same statement. Raises UserError for two problems with the
        same id.
        """
        if isinstance(truth, str) and truth.lstrip().startswith("{"):
            try:
                found = problem_of(truth)
            except UserError:
                found = None
            if found is not None:
                if self._of_rows.setdefault(found.id, found) != found:
                    raise UserError(f"two different problems have the id {found.id!r}")
                return found
        if prompt not in self._of_prompt:
            matches = next((those for text, those in self._statements if text and text in prompt), [])
            self._of_prompt[prompt] = matches[0] if len(matches) == 1 else None
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
    """Return the files that have only a number between ``prefix`` and ``suffix``, by this number.

    Raises UserError for two files with the same number.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{prefix}*{suffix}")):
        number = path.stem.removeprefix(prefix)
        if number.isascii() and number.isdigit():
            other = found.setdefault(int(number), path)
            if other is not path:
                raise UserError(f"{other} and {path} are both step {int(number)}; remove one of them")
    return found


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
        if path.exists() and not path.is_file():
            raise UserError("it is not a file")  # a pipe would be read without an end
        rows = _trl_rows(path, column) if path.suffix == ".parquet" else list(_verl_rows(path))
        return list(_from_rows(step, rows, problems))
    except (OSError, ValueError, RecursionError, pa.ArrowException, UserError) as error:
        raise UserError(f"{path}: cannot be read as stored replies ({error})") from None


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


def _row(place: str, prompt: object, reply: object, reward: object, truth: object) -> _Row:
    """Return a row of values that a file may have as any type. Raises UserError that names ``place``."""
    try:
        return _Row(_prompt_text(prompt), reply_text(reply), _reward(reward), truth)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _trl_rows(path: Path, column: str) -> list[_Row]:
    # Folders such as `lr=0.1` on the way to the file are not columns.
    table = pq.ParquetFile(path).read(use_threads=False)
    names = cast("list[str]", table.column_names)
    numbers = [
        name
        for name in names
        if name not in _TRL_COLUMNS and pa.types.is_floating(table.schema.field(name).type)
    ]
    chosen = [column] if column else numbers
    if missing := [name for name in ("prompt", "completion", *chosen) if name not in names]:
        raise UserError(f"no column {missing[0]!r}; it has {', '.join(names)}")
    if len(chosen) != 1:
        listed = ", ".join(numbers) or "none"
        raise UserError(f"the columns of rewards are {listed}; choose one with --reward-column")
    rows = cast("list[dict[str, Any]]", table.to_pylist())
    return [
        _row(
            f"row {number}",
            row["prompt"],
            row["completion"],
            row[chosen[0]],
            row.get("problem", row.get("ground_truth")),
        )
        for number, row in enumerate(rows, 1)
    ]


def _verl_rows(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line, parse_int=read_integer)
        except (ValueError, RecursionError) as error:
            raise UserError(f"line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"line {number} is not an object")
        fields = cast("dict[str, Any]", row)
        if missing := [name for name in _VERL_FIELDS if name not in fields]:
            raise UserError(f"line {number} has no field {missing[0]!r}")
        yield _row(f"line {number}", fields["input"], fields["output"], fields["score"], fields.get("gts"))


def _prompt_text(prompt: object) -> str:
    """Return a prompt as one text: a string, or messages. Raises UserError for anything else."""
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    messages = cast("list[Any]", prompt) if isinstance(prompt, list) else None
    if messages is None or not all(isinstance(message, Mapping | str | None) for message in messages):
        raise UserError(f"the prompt is a {type(prompt).__name__}; expected a text, or a list of messages")
    return "\n".join(reply_text(message) for message in messages)


def _reward(value: object) -> float | None:
    # TRL writes NaN where a reward function returned None.
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    number = finite_number(value)
    if number is None:
        raise UserError(f"the reward is a {type(value).__name__} that is not a finite number")
    return number
