"""Runs the steps of a pipeline whose outputs do not exist yet, and records what each step did."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.settings import Section
from whetstone.data.card import Card, PipelineRecord, PipelineStepRecord, PublishedCount, read_card
from whetstone.data.contamination import Decontamination
from whetstone.data.dataset import is_dataset, open_problems, place_of
from whetstone.data.pass_rate import DifficultyStep
from whetstone.data.pipeline import Pipeline
from whetstone.data.sources.table import MAP_ENDINGS, source_named


class BuildStage(Struct, frozen=True):
    """A step of the pipeline: its label and command, its settings, and the files that it reads."""

    label: str
    command: str
    settings: Any
    reads: list[str]


def stages_of(pipeline: Pipeline) -> list[BuildStage]:
    """Return the steps of a pipeline in their order, with ``prepare`` as the first."""
    labels = iter(pipeline.labels())
    stages: list[BuildStage] = []
    if plan := pipeline.prepare:
        # The files of the sources are inputs, so a changed file repeats the import.
        files = [path for name, at in plan.sources.items() if (path := at.path or source_named(name).path)]
        files += [name for name in plan.sources if name.endswith(MAP_ENDINGS)]
        stages.append(BuildStage(next(labels), "prepare", plan, files))
    for step in pipeline.steps:
        stages.append(BuildStage(next(labels), step.command, step.options, _input_files(step.options)))
    return stages


def _input_files(settings: Section) -> list[str]:
    match settings:
        case Decontamination():
            return [path or name for name, path in settings.against.items()]
        case DifficultyStep(from_eval=str(file)):
            return [file]
        case _:
            return []


def run_stages(
    pipeline: Pipeline,
    stages: Sequence[BuildStage],
    work: Path,
    run_step: Callable[[BuildStage, str, str], None],
    say: Callable[[str], None],
) -> tuple[Path, PipelineRecord]:
    """Run the steps whose outputs do not exist yet. Returns the last output, and a record of the steps.

    The name of a step's folder contains a hash of everything that its contents depend on. An existing folder
    is therefore complete and made from the same inputs. run_step: called with a step, the set that it reads,
    and the dataset to write.
    """
    before = pipeline.start or ""
    card = read_card(place_of(before)) if before else None
    count = sum(1 for _ in open_problems(before)) if before else 0
    key = _output_key(before)
    steps: list[PipelineStepRecord] = []
    for number, stage in enumerate(stages, 1):
        options = stage.settings.model_dump_json(exclude_defaults=True)
        # The key contains the key of the step before. A change therefore repeats all later steps.
        key = _output_key(key, stage.command, options, reads=stage.reads)
        folder = work / f"{number}-{stage.label}-{key[:12]}"
        exists = is_dataset(folder) and read_card(folder) is not None
        say(f"{number}. {stage.label}{': exists already' if exists else ''}")
        if not exists:
            run_step(stage, before, str(folder))
        after = read_card(folder)
        if after is None:
            raise UserError(
                f"{folder}: its data card cannot be read; remove the folder and run the command again"
            )
        steps.append(step := _step_record(stage, card, after, count))
        if not step.kept:
            reasons = ", ".join(f"{reason}: {number}" for reason, number in step.reasons.items())
            why = reasons or "it read none"
            raise UserError(f"{stage.label}: kept no problem ({why}); change its section of the file")
        before, card, count = str(folder), after, step.kept
    published = [PublishedCount(count.after, count.count, count.where) for count in pipeline.published]
    return Path(before), PipelineRecord(pipeline.name, pipeline.title, steps, published)


def _output_key(*parts: str, reads: Iterable[str] = ()) -> str:
    """Return a hash of what a step's output depends on: the version, options, previous output, and input
    files."""
    set_names = [parts[0]] if len(parts) == 1 else []
    files = [place for name in [*set_names, *reads] if name and (place := place_of(name)).exists()]
    inner = [file for place in files for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in inner]
    # The version is part of the key, because a new version may make other outputs from the same inputs.
    return hashlib.sha256(json.dumps([__version__, parts, stats]).encode()).hexdigest()


def _step_record(stage: BuildStage, before: Card | None, after: Card, count: int) -> PipelineStepRecord:
    """Return what a step did: the difference between the data cards before and after it."""
    reasons = _reasons(after)
    # A card counts the decisions of all steps so far, so the earlier ones are subtracted.
    reasons.subtract(_reasons(before))
    # `prepare` reads rows of the sources. Every later step reads problems.
    read = sum(source.rows for source in after.sources) if stage.command == "prepare" else count
    kept = sum(after.problems.values())
    return PipelineStepRecord(
        stage.label, read, kept, {why: n for why, n in sorted(reasons.items()) if n > 0}
    )


def _reasons(card: Card | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for reason in (reason for step in (card.drop_report if card else ()) for reason in step.reasons):
        if reason.action != "keep":
            counts[f"{reason.action} {reason.reason}"] += reason.count
    return counts
