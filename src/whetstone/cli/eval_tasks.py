"""The measurements of ``whetstone eval``: from a plan or the command line to loaded benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from whetstone.cli.judge_options import Machine
from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.evaluate.plan_file import PlannedBenchmark, read_plan
from whetstone.evaluate.replies.settings import EndpointSettings, ModelWeights

if TYPE_CHECKING:
    from whetstone.evaluate.measure import EvaluatedModel, EvaluationTask

from typing import Annotated, Any, ClassVar

from whetstone.core.flag import Flag
from whetstone.core.settings import Natural, NonEmpty, Section
from whetstone.evaluate.plan_file import Harness, ReplyChoices


class Measurement(Section):
    """The benchmarks to measure, and the folder of the results."""

    TITLE: ClassVar[str] = "what to measure"

    benchmark: Annotated[
        tuple[NonEmpty, ...],
        Flag("separated by commas; `whetstone recipes --benchmarks` lists them", "NAMES"),
    ] = ()
    plan: Annotated[
        NonEmpty | None,
        Flag(
            "a YAML file with benchmarks, prompts and sampling, or the name of a shipped plan "
            "(`whetstone recipes --plans`); other flags then apply to all its benchmarks",
            "FILE",
        ),
    ] = None
    data: Annotated[
        tuple[NonEmpty, ...],
        Flag(
            "the published file or folder of the benchmark; for `problems` a problem file or a set such as "
            "builtin:heldout; NAME= selects one of several benchmarks (default: download from the hub)",
            "[NAME=]FILE",
            repeat=True,
        ),
    ] = ()
    harness: Harness | None = None
    limit: Annotated[Natural, Flag("only the first N problems; 0 (default): all", "N")] = 0
    out: Annotated[
        NonEmpty | None, Flag("write manifest, samples.jsonl and evaluation.json to DIR/BENCHMARK", "DIR")
    ] = None
    restart: Annotated[bool, Flag("delete the contents of --out instead of resuming")] = False
    json_: Annotated[bool, Flag("print the results as one JSON object; everything else goes to stderr")] = (
        False
    )


class ReplyOptions(ReplyChoices):
    """The prompts and the sampling of replies."""

    recipe: Annotated[
        NonEmpty | None, Flag("use the environment, stop texts and length of a recipe", "FILE")
    ] = None


def option_named(key: str) -> str:
    """Return the flag of a setting. The index of a list is left out."""
    return "--" + key.partition(".")[0].replace("_", "-")


def benchmark_files(data: tuple[str, ...], names: list[str]) -> dict[str, str | None]:
    """Return the value of --data for each of the benchmarks ``names``, or None.

    ``NAME=PATH`` is for benchmark NAME, or for all its parts (``NAME:PART``). ``PATH`` is for the only
    benchmark.
    """
    files: dict[str, str | None] = dict.fromkeys(names)
    for text in data:
        name, equals, path = text.partition("=")
        matching = [known for known in names if equals and name in {known, known.partition(":")[0]}]
        if matching:
            files.update(dict.fromkeys(matching, path))
        elif len(files) == 1:
            files[names[0]] = text
        else:
            raise UserError(f"--data {text}: there are several benchmarks; name one: NAME=PATH")
    return files


def values_of_flags(measurement: Measurement, replies: ReplyOptions) -> dict[str, Any]:
    r"""Return the values that the flags give to every measurement. ``\n`` in texts becomes a line break."""
    values = replies.model_dump(exclude_none=True, exclude={"recipe"})
    for name in ("prompt", "prefix"):
        if name in values:
            values[name] = _unescape(values[name])
    if "stop" in values:
        values["stop"] = tuple(map(_unescape, values["stop"]))
    return {
        **values,
        **({"harness": measurement.harness} if measurement.harness else {}),
        **({"limit": measurement.limit} if measurement.limit else {}),
    }


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n")


def measure_benchmarks(
    measurement: Measurement,
    replies: ReplyOptions,
    model: ModelWeights,
    endpoint: EndpointSettings,
    machine: Machine,
) -> int:
    """Measure a model on benchmarks. Raises UserError."""
    # All options are checked before torch is loaded or a request is sent.
    from rich.console import Console

    from whetstone.evaluate.measure import measure, summary

    if not (model.source or endpoint.endpoint):
        raise UserError(
            "--model is missing: a model folder, a .gguf file or a hub id; or --endpoint: a server's address"
        )
    tasks = tasks_of(measurement, replies)
    results = measure(
        tasks,
        _model(model, endpoint, replies),
        workers=machine.workers,
        minimum_tier=machine.minimum_tier,
        environment=machine.environment,
        out=measurement.out,
        restart=measurement.restart,
        # With --json, standard output has the JSON object only.
        console=Console(stderr=True) if measurement.json_ else None,
    )
    if measurement.json_:
        print(json.dumps({name: summary(found) for name, found in results.items()}))
    return 0


def _model(model: ModelWeights, endpoint: EndpointSettings, replies: ReplyOptions) -> EvaluatedModel:
    """Return the endpoint, or the model in this process. Options of the other kind are refused."""
    if endpoint.endpoint:
        # An endpoint also uses the name of the model, its format, and the arguments of its template. All
        # other model options are for a model in this process.
        of_both = {"source": "", "format": "", "template_arguments": {}}
        if structs.replace(model, **of_both) != ModelWeights() or replies.max_prompt_tokens is not None:
            raise UserError(
                "--revision, --dtype, --device, --threads and --max-prompt-tokens are for a model in this "
                "process; with --endpoint the server decides"
            )
        from whetstone.evaluate.replies.endpoint import EndpointModel

        return EndpointModel(
            endpoint.endpoint,
            model.source or None,
            endpoint,
            format=model.format,
            template_arguments=model.template_arguments,
        )
    if endpoint != EndpointSettings():
        raise UserError(
            "--concurrency, --request-timeout, --silence, --patience, --body and --thinking are for "
            "--endpoint"
        )
    from whetstone.engine.sources import check_source

    check_source(model.source)  # before the seconds in which torch is imported
    from whetstone.evaluate.embedded import EmbeddedModel

    return EmbeddedModel(model)


def tasks_of(measurement: Measurement, replies: ReplyOptions) -> list[EvaluationTask]:
    """Return the measurements of a command. Raises UserError for invalid options."""
    from whetstone.evaluate.benchmarks import load_benchmark
    from whetstone.evaluate.folder import check_files
    from whetstone.evaluate.measure import EvaluationTask, check_grading
    from whetstone.evaluate.plan_file import asking_of, sampling_of
    from whetstone.run.recipe import load_recipe

    recipe = load_recipe(replies.recipe) if replies.recipe else None
    entries = _entries(measurement, replies)
    files = [entry.data for entry in entries if entry.data]
    for entry in entries if measurement.out else ():
        check_files(Path(measurement.out or "", entry.title), files)
    sampling, environment = (recipe.sampling, recipe.environment) if recipe else (None, None)
    planned = [(entry, sampling_of(entry, sampling, option_named)) for entry in entries]
    tasks: list[EvaluationTask] = []
    for entry, plan in planned:
        benchmark = load_benchmark(entry.benchmark, entry.data, limit=entry.limit or 0)
        grading = entry.harness or "ours"
        check_grading(grading, benchmark.problems)
        settings = asking_of(entry, environment, benchmark.prompt, option_named)
        tasks.append(EvaluationTask(entry.title, benchmark, settings, plan, grading))
    return tasks


def _entries(measurement: Measurement, replies: ReplyOptions) -> list[PlannedBenchmark]:
    """Return the plan's entries, or those of --benchmark, with the values of the flags."""
    if measurement.plan and measurement.benchmark:
        raise UserError("--plan and --benchmark both name benchmarks; use one of them")
    if not (measurement.plan or measurement.benchmark):
        raise UserError(
            "--benchmark is missing: humaneval, mbpp, or others (`whetstone recipes --benchmarks`); "
            "or --plan: a file, or a name of `whetstone recipes --plans`"
        )
    if len(set(measurement.benchmark)) < len(measurement.benchmark):
        raise UserError("--benchmark names one benchmark twice")
    entries = read_plan(measurement.plan).entries() if measurement.plan else []
    names = list(dict.fromkeys(entry.benchmark for entry in entries)) or list(measurement.benchmark)
    files = benchmark_files(measurement.data, names)
    entries = entries or [PlannedBenchmark(benchmark=name) for name in files]
    overrides = values_of_flags(measurement, replies)
    complete: list[PlannedBenchmark] = []
    for entry in entries:
        data = files[entry.benchmark] or entry.data
        values = {**entry.model_dump(exclude_none=True), **overrides, **({"data": data} if data else {})}
        complete.append(read_settings(PlannedBenchmark, values, name=option_named))
    return complete
