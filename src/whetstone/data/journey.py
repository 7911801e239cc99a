"""A whole journey in one file: from sources, or a set, through steps to a dataset; and what was published.

The sections have the options of the steps' commands, under the same names; ``cli/data_build.py`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field, model_validator

from whetstone.data.case_choice import CaseRule
from whetstone.data.contamination import Thresholds
from whetstone.data.duplicates import NEAR
from whetstone.data.layouts.write import layout_named
from whetstone.data.select import Order
from whetstone.data.sources.table import source_named
from whetstone.data.strengthen.strengthener import Effort
from whetstone.data.validate.reasons import check_reason
from whetstone.errors import UserError, did_you_mean
from whetstone.settings import (
    Count,
    Natural,
    NonEmpty,
    NonNegative,
    Positive,
    Section,
    Share,
    read_mapping,
    read_settings,
)
from whetstone.shipped_recipes import recipe_file

EXAMPLE = "recipes/data/builtin.yaml"
_USUAL = Thresholds()
_EFFORT = Effort()


def _source(name: str) -> str:
    return _known(name, source_named)


def _reason(name: str) -> str:
    return _known(name, lambda reason: check_reason(reason, "reason"))


def _layout(name: str) -> str:
    return _known(name, layout_named)


def _known(name: str, find: Callable[[str], object]) -> str:
    """The name, if ``find`` knows it; pydantic wants its own kind of error."""
    try:
        find(name)
    except UserError as error:
        raise ValueError(str(error)) from None
    return name


SourceName = Annotated[str, AfterValidator(_source)]
Reason = Annotated[str, AfterValidator(_reason)]
LayoutName = Annotated[str, AfterValidator(_layout)]


class SourceFiles(Section):
    """Where a source is read: at a ``revision`` of the hub, or its files at ``path``, which then wins."""

    revision: NonEmpty | None = None
    path: NonEmpty | None = None


class PrepareStep(Section):
    """Public datasets into one; see ``prepare.Plan``."""

    sources: Annotated[dict[SourceName, SourceFiles], Field(min_length=1)]
    splits: tuple[NonEmpty, ...] = ()
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.02
    seed: int = 0
    max_problems: Natural = 0


class ValidateStep(Section):
    """Keep problems whose tests are right; ``policy`` is a file, the others change it."""

    policy: NonEmpty | None = None
    repeats: Count | None = None
    mutants: Natural | None = None
    drop: tuple[Reason, ...] = ()
    mark: tuple[Reason, ...] = ()
    ignore: tuple[Reason, ...] = ()


class StrengthenStep(Section):
    """Add tests that refuse wrong programs; ``tests`` are new ones at most, ``budget`` their CPU seconds."""

    inputs: Count = _EFFORT.inputs
    mutants: Natural = _EFFORT.mutants
    rounds: Count = _EFFORT.rounds
    tests: Count = _EFFORT.most
    budget: Positive = _EFFORT.budget_s
    seed: int = 0


class DedupeStep(Section):
    """Keep one problem of those that are the same."""

    near: Annotated[float, Field(gt=0, le=1)] = NEAR


class DecontaminateStep(Section):
    """Drop what benchmarks hold; ``against`` has their files or sets, null where the benchmark is fetched."""

    against: Annotated[dict[NonEmpty, NonEmpty | None], Field(min_length=1)]
    ngram: Annotated[int, Field(ge=4)] = _USUAL.ngram
    overlap: Share = _USUAL.overlap
    similar: Share = _USUAL.similar
    reworded: Positive = _USUAL.reworded
    together: Positive = _USUAL.together


class DifficultyStep(Section):
    """Keep what a model solves sometimes: one in this process, at an endpoint, or measured before."""

    model: NonEmpty | None = None
    endpoint: NonEmpty | None = None
    from_eval: NonEmpty | None = None
    n: Count | None = None
    keep: Annotated[str, Field(pattern=r"^\d+\.\.(n(-\d+)?|\d+)$")] | None = None
    temperature: NonNegative | None = None
    max_tokens: Count | None = None
    seed: int | None = None

    @model_validator(mode="after")
    def _of_something(self) -> DifficultyStep:
        if self.from_eval is None and self.model is None and self.endpoint is None:
            raise ValueError("give `model`, `endpoint` or, of an evaluation that is done, `from_eval`")
        if self.from_eval is not None and (self.model or self.endpoint):
            raise ValueError("`from_eval` takes pass rates that were measured; leave out model and endpoint")
        return self


class SelectStep(Section):
    """Filters, caps on tests, a draw and an order; see ``select.Selection``."""

    kinds: tuple[NonEmpty, ...] = ()
    languages: tuple[NonEmpty, ...] = ()
    sources: tuple[SourceName, ...] = ()
    min_tests: Natural = 0
    max_tests: Natural = 0
    tests: CaseRule = "longest"
    pass_rate: tuple[Share, Share] | None = None
    max_problems: Natural = 0
    order: Order = "as-is"
    seed: int = 0

    @model_validator(mode="after")
    def _can_be(self) -> SelectStep:
        from whetstone.data.select import Selection

        try:
            Selection(kinds=self.kinds, pass_rate=self.pass_rate)
        except UserError as error:
            raise ValueError(str(error)) from None
        return self


class Step(Section):
    """One step: the section of one command."""

    validate_: Annotated[ValidateStep | None, Field(alias="validate")] = None
    strengthen: StrengthenStep | None = None
    dedupe: DedupeStep | None = None
    decontaminate: DecontaminateStep | None = None
    difficulty: DifficultyStep | None = None
    select: SelectStep | None = None

    @model_validator(mode="before")
    @classmethod
    def _one(cls, values: Any) -> Any:
        """A step that says nothing more (``- dedupe:``) has the command's usual options."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        given = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
        for name in given:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise ValueError(f"no step `{name}`{hint} (known: {', '.join(known)})")
        if len(given) != 1:
            raise ValueError(f"an item is one step and its options, of {', '.join(known)}")
        ((name, options),) = given.items()
        return {name: {} if options is None else options}

    @property
    def command(self) -> str:
        """The command of ``whetstone data`` that takes it."""
        return next(iter(self.model_fields_set)).rstrip("_")

    @property
    def options(self) -> Section:
        """Its section."""
        return getattr(self, next(iter(self.model_fields_set)))


class LayoutSection(Section):
    """The columns of another trainer, beside the dataset; ``skip`` leaves out what they cannot hold."""

    name: LayoutName
    skip: bool = False


class Published(Section):
    """``count`` problems after a step (``rows``: rows of the sources), as ``where`` says."""

    after: NonEmpty
    count: Natural
    where: NonEmpty


class Journey(Section):
    """The file. It begins with ``prepare`` or with ``start``, a set that is there or ships."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str = ""
    prepare: PrepareStep | None = None
    start: NonEmpty | None = None
    steps: tuple[Step, ...] = ()
    layout: LayoutSection | None = None
    published: tuple[Published, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Journey:
        if (self.prepare is None) == (self.start is None):
            raise ValueError("give `prepare`, with sources, or `start`, a problem set: one of them")
        if self.prepare is None and not self.steps:
            raise ValueError("`steps` is empty: give at least one, such as `- dedupe:`")
        known = ["rows", *self.labels()] if self.prepare else self.labels()
        for said in self.published:
            if said.after not in known:
                hint = did_you_mean(said.after, known)
                raise ValueError(f"`published`: no step `{said.after}`{hint} (known: {', '.join(known)})")
        return self

    def labels(self) -> list[str]:
        """The steps' names in their order: that of the command, from the second time on with its number."""
        commands = ["prepare"] * (self.prepare is not None) + [step.command for step in self.steps]
        before = [commands[:at].count(command) for at, command in enumerate(commands)]
        return [f"{name}-{n + 1}" if n else name for name, n in zip(commands, before, strict=True)]


def load_journey(path: str | Path, overrides: Sequence[str] = ()) -> Journey:
    """Read a journey, a file or one that ships by its name, and apply ``key.path=value`` overrides.

    Raises UserError that names file and key.
    """
    data = read_mapping(path, overrides, what="a journey", example=EXAMPLE, kind="data")
    return read_settings(Journey, data, where=str(recipe_file(path, "data")))
