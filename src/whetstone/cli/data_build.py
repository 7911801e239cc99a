"""``whetstone data build``: build a dataset from one pipeline file, with the functions of the step
commands."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.data_convert import Conversion, convert
from whetstone.cli.data_difficulty import difficulty_step
from whetstone.cli.data_prepare import PrepareFiles, run_prepare
from whetstone.cli.data_steps import Report, StepFiles, decontaminate, dedupe, run_select
from whetstone.cli.data_validate import ValidateFiles, validate
from whetstone.cli.flags import command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.optional_packages import install_command
from whetstone.core.outputs import check_outputs, work_folder
from whetstone.data.card import PipelineRecord, PublishedCount
from whetstone.data.contamination import Decontamination
from whetstone.data.dataset import SPLITS, check_destination, open_problems, place_of, publish
from whetstone.data.duplicates import Deduplication
from whetstone.data.pass_rate import DifficultyStep
from whetstone.data.pipeline import (
    STEP_PLUGINS,
    BuildStage,
    Pipeline,
    PipelineStep,
    load_pipeline,
    run_stages,
    stages_of,
)
from whetstone.data.prepare import PreparationPlan
from whetstone.data.select import Selection
from whetstone.data.sources.table import source_named
from whetstone.data.validate.policy import Policy

_DESCRIPTION = """\
Build a dataset from a pipeline file: sources, steps in their order, export format. Every step is the command
of its name (`whetstone data STEP --help`), with the options of its section. The output of each step is kept
in OUT.steps. The same command resumes; after a change of the file it starts at the first step that changed.
The drop report is printed with the published counts, and stored in the data card.
"""
_EXAMPLES = """\
examples:
  whetstone data build recipes/data/builtin.yaml --out sets/builtin
  whetstone data build recipes/data/archer.yaml prepare.sources.archer.path=downloads/archer
  whetstone data build recipes/data/builtin.yaml steps.1.select.max_tests=8 --out sets/eight
"""


class _Building(Struct, frozen=True, kw_only=True):
    """The pipeline file, and the dataset to write."""

    file: Annotated[
        str,
        Flag(
            "a YAML file, or a shipped pipeline: builtin (`whetstone recipes --data` lists them)",
            "FILE",
            positional=True,
        ),
    ]
    overrides: Annotated[
        tuple[str, ...], Flag("keys of the file to set, by dotted path", "KEY=VALUE", positional=True)
    ] = ()
    out: Annotated[str | None, Flag("the dataset folder to write (default: sets/NAME)", "DIR")] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False
    workers: Annotated[int, Meta(ge=0), Flag("workers of the judge; 0 (default): one for each core", "N")] = 0


@command(
    "build",
    help="run a pipeline from one file, and report dropped problems with the published counts",
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
)
def run(to: _Building) -> int:
    """Run the action. Raises UserError for an invalid file and for missing inputs."""
    build(to.file, to.overrides, to.out, workers=to.workers, replace=to.replace)
    return 0


def build(
    file: str,
    overrides: Sequence[str] = (),
    to: str | None = None,
    *,
    workers: int = 0,
    replace: bool = False,
) -> None:
    """Build the dataset folder ``to`` (default ``sets/NAME``) from the pipeline in ``file``.

    Raises UserError for an invalid file and for missing inputs.
    """
    pipeline = load_pipeline(file, overrides)
    out = Path(to or f"sets/{pipeline.name}")
    stages = stages_of(pipeline)
    target = out.with_name(f"{out.name}.{pipeline.export_format.name}") if pipeline.export_format else None
    splits = [target / f"{split}.parquet" for split in SPLITS] if target else []
    set_names = [pipeline.start or "", *(name for stage in stages for name in stage.reads)]
    reads = [file, *(place_of(name) for name in set_names if name)]
    # All outputs and inputs are checked before the first step, because a pipeline may run for hours.
    check_outputs(check_destination(out), *splits, inputs=reads, replace=replace)
    if missing := list(_missing_inputs(pipeline)):
        raise UserError(f"{file}: inputs are missing, and nothing was started:\n  " + "\n  ".join(missing))
    work = out.with_name(f"{out.name}.steps")  # the outputs of the steps stay next to the dataset
    console = Console()
    # Locked: a second build of this dataset would write the same folders.
    with work_folder(work, out, "building"):
        last, record = run_stages(
            pipeline,
            stages,
            work,
            lambda stage, source, made: _run_step(stage, source, made, workers),
            lambda line: console.print(line, style="bold"),
        )
        publish(last, out, record)
    if pipeline.export_format and target:
        export_format = pipeline.export_format
        convert(
            Conversion(
                source=str(out),
                target=str(target),
                export_format=export_format.name,
                skip=export_format.skip,
                replace=True,
            )
        )
    _print_drop_report(record, out, console)


def _run_step(stage: BuildStage, source: str, out: str, workers: int) -> None:
    """Run the function of a step's command on a set."""
    if isinstance(stage.settings, PreparationPlan):
        run_prepare(stage.settings, PrepareFiles(out=out, replace=True))
        return
    if stage.command in STEP_PLUGINS:
        STEP_PLUGINS[stage.command].run(source, out, stage.settings, workers)
        return
    files = StepFiles(set=source, out=out, replace=True)
    machine = JudgeMachine(workers=workers)
    match stage.settings:
        case Policy() as settings:
            validate(ValidateFiles(set=source, out=out, replace=True), settings, machine)
        case Deduplication() as settings:
            dedupe(files, settings)
        case Decontamination() as settings:
            decontaminate(files, settings, Report())
        case DifficultyStep() as settings:
            difficulty_step(files, settings, machine)
        case Selection() as settings:
            run_select(files, settings)
        case _:
            raise TypeError(f"no step has settings of type {type(stage.settings).__name__}")


def _missing_inputs(pipeline: Pipeline) -> Iterator[str]:
    """Yield every missing input of the pipeline with its remedy."""
    if pipeline.start is not None:
        yield from _loading_error("start", lambda: next(open_problems(str(pipeline.start)), None))
    for name, at in pipeline.prepare.sources.items() if pipeline.prepare else ():
        key = f"prepare.sources.{name}"
        if at.path or source_named(name).path:
            yield from _missing_file(f"{key}.path", at.path or str(source_named(name).path))
        elif source_named(name).hub_id is None:
            yield f"`{key}`: not on the hub; give its files, {key}.path=PATH"
        else:
            yield from _missing_package(
                key, "huggingface_hub", "data", f", or give its files, {key}.path=PATH"
            )
    for number, step in enumerate(pipeline.steps):
        yield from _missing_of_step(step, f"steps.{number}.{step.command}")


def _missing_of_step(step: PipelineStep, key: str) -> Iterator[str]:
    from whetstone.evaluate.benchmarks import BENCHMARKS

    for name, path in step.decontaminate.against.items() if step.decontaminate else ():
        at = f"{key}.against.{name}"
        known = BENCHMARKS.get(name.split(":")[0])
        if known is None:
            yield from _loading_error(at, lambda named=path or name: next(open_problems(named), None))
        elif path:
            yield from _missing_file(at, path)
        elif known.source is None:
            yield f"`{at}`: needs its file, {at}=PATH"
        elif source_named(known.source).package is None:
            yield from _missing_package(at, "huggingface_hub", "data", f", or give its file, {at}=PATH")
    if step.difficulty:
        if step.difficulty.from_eval:
            yield from _missing_file(f"{key}.from_eval", step.difficulty.from_eval)
        elif step.difficulty.endpoint:
            yield from _missing_package(key, "httpx2", "eval")
        else:
            yield from _missing_package(key, "torch", "train", ", or give an endpoint")


def _loading_error(key: str, load: Callable[[], object]) -> Iterator[str]:
    try:
        load()
    except UserError as error:
        yield f"`{key}`: {error}"


def _missing_file(key: str, path: str) -> Iterator[str]:
    if not Path(path).exists():
        yield f"`{key}`: {path}: no such file or folder; give {key}=PATH"


def _missing_package(key: str, module: str, extra: str, else_: str = "") -> Iterator[str]:
    # The package is only searched for: importing torch would take seconds.
    if importlib.util.find_spec(module) is None:
        yield f"`{key}`: needs {module}: {install_command(extra)}{else_}"


def _print_drop_report(record: PipelineRecord, out: Path, console: Console) -> None:
    console.print(Text(record.title or record.name, style="bold"), soft_wrap=True)
    table = Table("step", box=None, pad_edge=False)
    for column in ("read", "kept"):
        table.add_column(column, justify="right")
    table.add_column("published")
    for step in record.steps:
        if step.step == "prepare" and (published := record.published_after("rows")):
            table.add_row("rows", "", f"{step.read:,}", Text(_published_text(published)))
        text = _published_text(record.published_after(step.step))
        table.add_row(step.step, f"{step.read:,}", f"{step.kept:,}", Text(text))
        for reason, number in step.reasons.items():
            table.add_row(Text(f"  {reason}", style="dim"), "", Text(f"{number:,}", style="dim"), "")
    console.print(table)
    console.print(f"{out}: {record.steps[-1].kept:,} problems", highlight=False, soft_wrap=True)


def _published_text(counts: Iterable[PublishedCount]) -> str:
    return "; ".join(f"{count.count:,} ({count.where})" for count in counts)
