"""rollouts/step-NNNNNN.parquet: every reply of a step, and what the judge said of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.outputs import replacing
from whetstone.sample import Group, Sample
from whetstone.verdict import CaseJudgement, Verdict

_NAME = re.compile(r"step-(\d+)\.parquet")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("problem_id", pa.string()),
        ("prompt", pa.string()),
        ("reply", pa.string()),
        ("program", pa.string()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("reward", pa.float64()),
        ("finish_reason", pa.string()),
        ("tokens", pa.int64()),
        ("version_min", pa.int64()),
        ("version_max", pa.int64()),
        ("cases", pa.string()),
    ]
)


class Rollout(Struct, frozen=True):
    """One reply. ``verdict`` is None when it was never judged; versions are those of its tokens,
    None for a reply without tokens; ``tokens`` counts the reply's."""

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


def rollouts_from(step: int, groups: Iterable[Group], decode: Callable[[list[int]], str]) -> list[Rollout]:
    """The rollouts of a step's groups, in order. ``decode`` turns prompt token ids into text."""
    rollouts: list[Rollout] = []
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
    """Writes one Parquet file a step below ``run_dir/rollouts``, each in one rename."""

    def __init__(self, run_dir: str | Path) -> None:
        self.folder = Path(run_dir) / "rollouts"
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, rollouts: Sequence[Rollout]) -> Path:
        """Write a step's rollouts, replacing an earlier file of that step. Returns the file's path."""
        target = self.folder / f"step-{step:06d}.parquet"
        table = pa.Table.from_pylist([_to_row(rollout) for rollout in rollouts], schema=_SCHEMA)
        with replacing(target) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return target

    def truncate_after(self, step: int) -> int:
        """Delete the files of steps later than ``step``, as resuming does. Returns how many."""
        later = [path for number, path in _step_files(self.folder) if number > step]
        for path in later:
            path.unlink()
        return len(later)


def rollout_steps(run_dir: str | Path) -> list[int]:
    """The steps that have a rollout file, ascending; empty when there is none."""
    return [step for step, _ in _step_files(Path(run_dir) / "rollouts")]


def rollout_files(run_dir: str | Path) -> list[Path]:
    """The rollout files of a run, by step."""
    return [path for _, path in _step_files(Path(run_dir) / "rollouts")]


def read_rollouts(run_dir: str | Path, step: int) -> list[Rollout]:
    """One step's rollouts, in the order written. Raises UserError when the file is missing or broken."""
    path = Path(run_dir) / "rollouts" / f"step-{step:06d}.parquet"
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, schema=_SCHEMA).to_pylist()
        return [_from_row(row) for row in rows]
    except (OSError, pa.ArrowException, msgspec.MsgspecError, KeyError) as error:
        raise UserError(f"{path}: cannot be read as rollouts ({error}); delete it to go on without") from None


def _rollout(step: int, problem_id: str, prompt: str, sample: Sample) -> Rollout:
    judgement = sample.judgement
    return Rollout(
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
    )


def _to_row(rollout: Rollout) -> dict[str, Any]:
    row = msgspec.structs.asdict(rollout)
    row["verdict"] = rollout.verdict.value if rollout.verdict else None
    cases = [msgspec.structs.replace(case, reason=_storable(case.reason)) for case in rollout.cases]
    row["cases"] = msgspec.json.encode(cases).decode()
    for name in ("prompt", "reply", "program", "reason"):
        row[name] = _storable(row[name])
    return row


def _from_row(row: dict[str, Any]) -> Rollout:
    cases = msgspec.json.decode(row["cases"], type=list[CaseJudgement])
    return msgspec.convert({**row, "cases": cases}, Rollout)


def _storable(text: str | None) -> str | None:
    """A model can spell half a surrogate pair, which UTF-8 cannot hold: it becomes U+FFFD."""
    return None if text is None else _SURROGATE.sub("\ufffd", text)


def _step_files(folder: Path) -> list[tuple[int, Path]]:
    found = ((_NAME.fullmatch(path.name), path) for path in folder.glob("step-*.parquet"))
    return sorted((int(match[1]), path) for match, path in found if match)
