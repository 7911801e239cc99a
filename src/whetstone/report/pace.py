"""Reads from a run's folder what its advice about staleness needs; see ``rollout/pace.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from whetstone.report.metrics import Record
from whetstone.report.rollouts import groups_of, rollout_columns
from whetstone.rollout.pace import MeasuredFlow

LATEST = 40
"""Only so many steps are read, because replies change while a model learns."""
LEAST_STEPS = 8
_COLUMNS = ["problem_id", "tokens", "version_min", "version_max"]


def measured_flow(folder: Path, recipe: Mapping[str, Any], records: Sequence[Record]) -> MeasuredFlow | None:
    """Return what the latest steps of an asynchronous run measured; None without staleness, or if too little
    is known.

    recipe: as it is written in the folder. records: the train records of the run.
    """
    flow, trainer = recipe.get("flow"), recipe.get("trainer")
    latest = [each for each in records[-LATEST:] if "token_s" in each.get("time", {})]
    if not flow or not flow["staleness"] or not trainer or len(latest) < LEAST_STEPS:
        return None
    token_s = latest[-1]["time"]["token_s"]
    longest, flying = _groups(folder, [each["step"] for each in latest])
    sampled = sum(each["group/sampled"] - each.get("dropped/stale", 0) for each in latest)
    trained = sum(each["group/trained"] for each in latest)
    if not longest or not trained:
        return None
    durations = [tokens * token_s for tokens in longest]
    step_s = fmean(each["time"]["step"] for each in latest)
    # The groups in flight at a moment, in the mean: those of a step times the steps that each is written for.
    mean = len(longest) / len(latest) * fmean(durations) / step_s
    return MeasuredFlow(
        rule=flow["batch_composition"],
        staleness=flow["staleness"],
        prompts=trainer["prompts_per_step"],
        durations=durations,
        in_flight=max(1.0, mean, *flying),
        without_signal=1 - trained / sampled,
        step_s=step_s,
        train_s=fmean(each["time"]["train"] + each["time"]["sync"] for each in latest),
        wasted=latest[-1].get("staleness/wasted", 0.0),
    )


def _groups(folder: Path, steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the tokens of the longest reply of each group, and how many groups were written when each
    version of the weights became the newest."""
    longest: list[int] = []
    flying: Counter[int] = Counter()
    for step in steps if find_spec("pyarrow") else ():
        columns = rollout_columns(folder / "rollouts" / f"step-{step:06d}.parquet", _COLUMNS)
        if columns is None:
            continue
        problems, *numbers = columns
        groups: dict[int, list[tuple[int, int, int]]] = {}
        for group, *reply in zip(groups_of(problems), *numbers, strict=True):
            if None not in reply:
                groups.setdefault(group, []).append((reply[0], reply[1], reply[2]))
        for replies in groups.values():
            tokens, first, last = zip(*replies, strict=True)
            longest.append(max(tokens))
            flying.update(range(min(first) + 1, max(last) + 1))
    return longest, [*flying.values()]
