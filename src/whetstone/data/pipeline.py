"""The pipeline of a dataset in one file: sources or a set, steps, and published counts.

The section of a step is the settings class of its command. ``pipeline_run.py`` runs the steps. Installed
packages add steps by entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Struct
from pydantic import Field, create_model, model_validator

from whetstone.core.errors import did_you_mean
from whetstone.core.optional_packages import missing_package
from whetstone.core.plugins import installed_plugins
from whetstone.core.settings import Natural, NonEmpty, Section, read_mapping, read_settings
from whetstone.core.shipped_recipes import recipe_file
from whetstone.data.contamination import Decontamination
from whetstone.data.duplicates import Deduplication
from whetstone.data.export_formats.write import ExportFormatName
from whetstone.data.pass_rate import DifficultyStep
from whetstone.data.prepare import PreparationPlan
from whetstone.data.select import Selection
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
    export_format: another format to write besides, for another trainer; null writes none.
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
