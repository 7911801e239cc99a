"""The pipeline of a dataset in one file: sources or a set, steps, and published counts.

The section of a step is the settings class of its command. Installed packages add steps by
entry points. Steps whose outputs exist do not run again, and it is recorded what each step did.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Struct
from pydantic import Field, create_model, model_validator

from whetstone import __version__
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.optional_packages import missing_package
from whetstone.core.plugins import installed_plugins
from whetstone.core.settings import Natural, NonEmpty, Section, read_mapping, read_settings
from whetstone.core.shipped_recipes import recipe_file
from whetstone.data.card import Card, PipelineRecord, PipelineStepRecord, PublishedCount, read_card
from whetstone.data.contamination import Decontamination
from whetstone.data.dataset import is_dataset, open_problems, place_of
from whetstone.data.duplicates import Deduplication
from whetstone.data.export_formats import ExportFormatName
from whetstone.data.pass_rate import DifficultyStep
from whetstone.data.prepare import PreparationPlan
from whetstone.data.select import Selection
from whetstone.data.sources.table import MAP_ENDINGS, source_named
from whetstone.data.validate.policy import Policy

EXAMPLE = "recipes/data/builtin.yaml"
# The steps of the package whetstone-curation.
_CURATION = ("strengthen",)


class StepPlugin(Struct, frozen=True):
    """A step of an installed package. run: called with the set, the output folder, the options, and the
    number of the judge's workers."""

    settings: type[Section]
    run: Callable[[str, str, Any, int], object]


STEP_PLUGINS: dict[str, StepPlugin] = installed_plugins("whetstone.data_steps")


class PipelineStep(Section):
    """One step: the options of one command.

    validate_: checks references, tests and statements, and drops or marks faulty problems.
    dedupe: drops duplicates, within a source and across sources.
    decontaminate: drops problems that are in benchmarks.
    difficulty: samples replies of a model and keeps problems by their pass rate.
    select: keeps a part of the problems or of their tests, by number, source or difficulty.
    """

    validate_: Annotated[Policy | None, Field(alias="validate")] = None
    dedupe: Deduplication | None = None
    decontaminate: Decontamination | None = None
    difficulty: DifficultyStep | None = None
    select: Selection | None = None

    @model_validator(mode="before")
    @classmethod
    def _one(cls, values: Any) -> Any:
        """Check that an item is one step. A step without options (``- dedupe:``) has the defaults of the
        command."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        given = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
        for name in given:
            if name in _CURATION and name not in known:
                raise ValueError(missing_package(f"the step `{name}`", "whetstone-curation"))
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise ValueError(f"no step `{name}`{hint} (known: {', '.join(known)})")
        if len(given) != 1:
            raise ValueError(f"an item is one step and its options, of {', '.join(known)}")
        ((name, options),) = given.items()
        return {name: {} if options is None else options}

    @property
    def command(self) -> str:
        """The command of ``whetstone data`` that runs the step."""
        return next(iter(self.model_fields_set)).rstrip("_")

    @property
    def options(self) -> Section:
        """The options of the step."""
        return getattr(self, next(iter(self.model_fields_set)))


if TYPE_CHECKING:
    AnyStep = PipelineStep
else:
    _ADDED = {
        name: (plugin.settings | None, Field(None, description=f"The options of `whetstone data {name}`."))
        for name, plugin in STEP_PLUGINS.items()
    }
    AnyStep = create_model("PipelineStep", __base__=PipelineStep, **_ADDED)


class _ExportSection(Section):
    """An export next to the dataset.

    name: the format, such as ``verl``.
    skip: true leaves out problems that the format cannot represent; otherwise one of them ends the pipeline.
    """

    name: ExportFormatName
    skip: bool = False


class _ReportedCount(Section):
    """A published count of problems, which the run compares with its own.

    after: the label of the step, such as ``dedupe``; ``rows`` stands for the rows of the sources.
    count: the published number of problems or rows.
    where: the source of the number, such as a paper and its section.
    """

    after: NonEmpty
    count: Natural
    where: NonEmpty


class Pipeline(Section):
    """The pipeline file. It begins with ``prepare``, or with ``start``.

    name: the name of the data set, and of its folder in ``sets``.
    title: one line for the data card; empty is the name.
    prepare: the public sources, and how they are imported.
    start: an existing or shipped problem set to begin with, instead of sources.
    steps: the steps in their order, each an item such as ``- dedupe:`` with the options of its command.
    export_format: a further format to write, for another trainer; null writes none.
    published: counts of the publication that the pipeline reproduces, for comparison.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str = ""
    prepare: PreparationPlan | None = None
    start: NonEmpty | None = None
    steps: tuple[AnyStep, ...] = ()
    export_format: _ExportSection | None = None
    published: tuple[_ReportedCount, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Pipeline:
        if (self.prepare is None) == (self.start is None):
            raise ValueError("give `prepare`, with sources, or `start`, a problem set: one of them")
        if self.prepare is None and not self.steps:
            raise ValueError("`steps` is empty: give at least one, such as `- dedupe:`")
        known = ["rows", *self.labels()] if self.prepare else self.labels()
        for count in self.published:
            if count.after not in known:
                hint = did_you_mean(count.after, known)
                raise ValueError(f"`published`: no step `{count.after}`{hint} (known: {', '.join(known)})")
        return self

    def labels(self) -> list[str]:
        """Return the names of the steps in their order: the command, with a number from its second use on."""
        commands = ["prepare"] * (self.prepare is not None) + [step.command for step in self.steps]
        before = [commands[:at].count(command) for at, command in enumerate(commands)]
        return [f"{name}-{n + 1}" if n else name for name, n in zip(commands, before, strict=True)]


def load_pipeline(path: str | Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Read a pipeline from a file, or a shipped one by name, and apply ``key.path=value`` overrides.

    Raises UserError with the file and the key.
    """
    data = read_mapping(path, overrides, what="a pipeline", example=EXAMPLE, kind="data")
    return read_settings(Pipeline, data, where=str(recipe_file(path, "data")))


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
