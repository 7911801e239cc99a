"""rollouts/step-NNNNNN.parquet: every reply of a step with its judgement.

Replies to one prompt are neighbours in the file; they are a group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import fsum, isfinite
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import replacing
from whetstone.core.sample import Group, Sample
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.report.reply_rows import verdict_word

_NAME = re.compile(r"step-(\d+)\.parquet")
_SURROGATE = re.compile("[\ud800-\udfff]")
_COLUMNS = {
    "step": "int64",
    "problem_id": "string",
    "prompt": "string",
    "reply": "string",
    "program": "string",
    "verdict": "string",
    "reason": "string",
    "reward": "float64",
    "finish_reason": "string",
    "tokens": "int64",
    "version_min": "int64",
    "version_max": "int64",
    "cases": "string",
    "accepted": "bool",
    "dialogue": "string",
}


class StoredRollout(Struct, frozen=True):
    """One reply. ``verdict`` is None if it was never judged. ``tokens`` is the number of its tokens.
    ``accepted`` and ``dialogue`` are those of ``Sample``.

    version_min, version_max: the weight versions of its tokens; None for a reply without tokens.
    """

    step: int
    problem_id: str
    prompt: str
    reply: str
    program: str | None
    verdict: Verdict | None
    reason: str
    reward: float | None
    finish_reason: str
    tokens: int
    version_min: int | None
    version_max: int | None
    cases: list[CaseJudgement]
    accepted: bool | None = None
    dialogue: list[tuple[str, str]] = []

    @property
    def word(self) -> str:
        """The word for its result, see ``verdict_word``."""
        return verdict_word(self.verdict, self.accepted, self.reward, failed=self.finish_reason == "abort")


def rollouts_from(
    step: int, groups: Iterable[Group], decode: Callable[[list[int]], str]
) -> list[StoredRollout]:
    """Return the rollouts of a step's groups, in order. ``decode`` turns prompt token ids into text."""
    rollouts: list[StoredRollout] = []
    for group in groups:
        prompt = decode(group.prompt_ids)
        rollouts.extend(
            _rollout(
                step, group.problem_id, decode(sample.prompt_ids) if sample.prompt_ids else prompt, sample
            )
            for sample in group.samples
        )
    return rollouts


class RolloutWriter:
    """Writes one Parquet file per step to ``run_dir/rollouts``, each by a single rename."""

    def __init__(self, run_dir: str | Path) -> None:
        self.folder = Path(run_dir) / "rollouts"
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, rollouts: Sequence[StoredRollout]) -> Path:
        """Write a step's rollouts, and replace an earlier file of that step. Returns the path of the file."""
        target = self.folder / f"step-{step:06d}.parquet"
        from whetstone.core.parquet import pa, pq

        table = pa.Table.from_pylist([_to_row(rollout) for rollout in rollouts], schema=_schema())
        # A page may read the folder at any time, so a file appears complete or not at all.
        with replacing(target) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return target

    def truncate_after(self, step: int) -> int:
        """Delete the files of steps after ``step``, before a run resumes. Returns their number."""
        later = [path for number, path in _step_files(self.folder) if number > step]
        for path in later:
            path.unlink()
        return len(later)


def _schema() -> Any:
    from whetstone.core.parquet import pa

    return pa.schema({name: pa.type_for_alias(kind) for name, kind in _COLUMNS.items()})


def rollout_columns(path: Path, names: list[str]) -> list[list[Any]] | None:
    """Return columns of a file; None if it cannot be read. A column that an earlier version did not write is
    None in each row."""
    from whetstone.core.parquet import pa, pq

    try:
        # One thread: files are small, and handing columns to threads costs more than reading them.
        read = pq.read_table(path, columns=names, schema=_schema(), use_threads=False)
        return [read.column(name).to_pylist() for name in names]
    except (OSError, ValueError, pa.ArrowException, KeyError):  # ValueError: text that is not UTF-8
        return None


def rollout_steps(run_dir: str | Path) -> list[int]:
    """Return the steps that have a rollout file, in ascending order."""
    return [step for step, _ in _step_files(Path(run_dir) / "rollouts")]


def rollout_files(run_dir: str | Path) -> list[Path]:
    """Return the rollout files of a run, by step."""
    return [path for _, path in _step_files(Path(run_dir) / "rollouts")]


def read_rollouts(run_dir: str | Path, step: int) -> list[StoredRollout]:
    """Return the rollouts of a step, in file order. Raises UserError for a missing or damaged file."""
    from whetstone.core.parquet import pa, pq

    path = Path(run_dir) / "rollouts" / f"step-{step:06d}.parquet"
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, schema=_schema()).to_pylist()
        return [_from_row(row) for row in rows]
    except (OSError, ValueError, TypeError, RecursionError, pa.ArrowException, KeyError) as error:
        raise UserError(
            f"{path}: cannot be read as rollouts ({error}); delete it to continue without it"
        ) from None


def _rollout(step: int, problem_id: str, prompt: str, sample: Sample) -> StoredRollout:
    judgement = sample.judgement
    return StoredRollout(
        step=step,
        problem_id=problem_id,
        prompt=prompt,
        reply=sample.text,
        program=sample.program,
        verdict=judgement.verdict if judgement else None,
        reason=judgement.reason if judgement else "",
        reward=sample.reward,
        finish_reason=sample.finish_reason,
        tokens=sample.length,
        version_min=min(sample.versions, default=None),
        version_max=max(sample.versions, default=None),
        cases=judgement.cases if judgement else [],
        accepted=sample.accepted,
        dialogue=sample.dialogue,
    )


def _to_row(rollout: StoredRollout) -> dict[str, Any]:
    row = msgspec.structs.asdict(rollout)
    row["verdict"] = rollout.verdict.value if rollout.verdict else None
    cases = [msgspec.structs.replace(case, reason=_without_surrogates(case.reason)) for case in rollout.cases]
    row["cases"] = msgspec.json.encode(cases).decode()
    dialogue = [(role, _without_surrogates(text)) for role, text in rollout.dialogue]
    row["dialogue"] = msgspec.json.encode(dialogue).decode() if dialogue else None
    for name in ("prompt", "reply", "program", "reason"):
        row[name] = _without_surrogates(row[name])
    return row


def _from_row(row: dict[str, Any]) -> StoredRollout:
    cases = msgspec.json.decode(row["cases"], type=list[CaseJudgement])
    # A single reply has none, and neither has any reply in a file of an earlier version.
    dialogue = msgspec.json.decode(row["dialogue"] or "[]", type=list[tuple[str, str]])
    rollout = msgspec.convert({**row, "cases": cases, "dialogue": dialogue}, StoredRollout)
    if rollout.reward is not None and not isfinite(rollout.reward):
        raise ValueError("a reward is not finite")
    return rollout


def _without_surrogates(text: str | None) -> str | None:
    """Return the text with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    return None if text is None else _SURROGATE.sub("\ufffd", text)


def _step_files(folder: Path) -> list[tuple[int, Path]]:
    found = ((_NAME.fullmatch(path.name), path) for path in folder.glob("step-*.parquet"))
    return sorted((int(match[1]), path) for match, path in found if match)


class RolloutRow(Struct, frozen=True):
    """A rollout with its row and group in its step. ``above``: its reward minus the mean of the group."""

    rollout: StoredRollout
    row: int
    group: int
    above: float | None


def with_groups(rollouts: Sequence[StoredRollout]) -> list[RolloutRow]:
    """Return all rollouts of a step with their rows and groups."""
    groups = groups_of([rollout.problem_id for rollout in rollouts])
    above = above_group(groups, [rollout.reward for rollout in rollouts])
    rows = zip(rollouts, groups, above, strict=True)
    return [
        RolloutRow(rollout, row, group, difference) for row, (rollout, group, difference) in enumerate(rows)
    ]


def groups_of(problem_ids: Sequence[str]) -> list[int]:
    """Return the group number of each reply, starting at 0. Adjacent replies to the same problem form a
    group."""
    return [number for number, (_, same) in enumerate(groupby(problem_ids)) for _ in same]


def above_group(groups: Sequence[int], rewards: Sequence[float | None]) -> list[float | None]:
    """Return each reward minus the mean of its group; None for a reply without a reward.

    Every group baseline starts from this number. What an algorithm does with it is not stored.
    """
    rewards_of: dict[int, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        if reward is not None:
            rewards_of.setdefault(group, []).append(reward)
    means = {group: fsum(values) / len(values) for group, values in rewards_of.items()}
    return [
        None if reward is None else reward - means[group]
        for group, reward in zip(groups, rewards, strict=True)
    ]
