"""The border of two stages: the last evaluation of one is the first of the next.

Both are of the same weights. What is asked and judged alike there is taken over, reply by reply, and not made
again; a set that the next stage asks in another way (longer replies, say) is evaluated anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone.evaluate.benchmarks import problems_hash
from whetstone.evaluate.folder import MANIFEST_FILE
from whetstone.evaluate.results import EVALUATION_FILE
from whetstone.judge.settings import JudgeSection
from whetstone.launch.evaluation import Measured, evaluation_manifest
from whetstone.outputs import write_file


@dataclass(frozen=True)
class StageBefore:
    """A finished stage: its folder, its last step, and what it was evaluated on by which judge."""

    run: Path
    step: int
    measured: Sequence[Measured]
    judge: JudgeSection


def take_over(
    before: StageBefore,
    run: Path,
    measured: Sequence[Measured],
    judge: JudgeSection,
    say: Callable[[str], None],
) -> None:
    """Put the replies of the last evaluation of ``before`` where ``run`` looks for those of its step 0."""
    if judge != before.judge:
        return
    earlier = {one.name: one for one in before.measured}
    taken: list[str] = []
    for one in measured:
        source = before.run / "evaluations" / f"step-{before.step}-{one.name}"
        if one.name not in earlier or not alike(one, earlier[one.name]):
            continue
        if not (source / EVALUATION_FILE).exists():
            continue
        target = run / "evaluations" / f"step-0-{one.name}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        content = evaluation_manifest(one, {"step": 0, "taken_from": str(source)})
        write_file(target / MANIFEST_FILE, [json.dumps(content, indent=1).encode()])
        taken.append(one.name)
    if taken:
        say(f"{run}: step 0 on {', '.join(taken)} is taken from {before.run}: the same weights, asked alike")


def alike(one: Measured, other: Measured) -> bool:
    """Whether the same weights get the same figures on both: problems, words, draws and rules."""

    def facts(measured: Measured) -> tuple[Any, ...]:
        return measured.settings, measured.plan, measured.grading, problems_hash(measured.problems)

    return facts(one) == facts(other)
