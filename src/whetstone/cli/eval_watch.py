"""``whetstone eval watch``: evaluate the checkpoints of a run while it trains."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from whetstone.cli.eval_options import benchmark_files
from whetstone.cli.flags import add_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag

if TYPE_CHECKING:
    from whetstone.run.evaluation import EvaluationSet
    from whetstone.run.recipe import Recipe

_DESCRIPTION = """\
Evaluate the checkpoints of a run as they are written, in this process, so that training does not wait.
Without --benchmark the sets of the run's recipe are used. `evaluation.process: separate` in a recipe
starts this command automatically. Results go to RUN/evaluations and appear in `whetstone report RUN`.
The same command resumes. It ends after the run's last checkpoint. If it is started by hand, it misses
checkpoints that training removes first: see `trainer.keep_checkpoints`."""


class _Watching(Struct, frozen=True, kw_only=True):
    """The run whose checkpoints are evaluated, and the resources for it."""

    run: Annotated[str, Flag("the folder that `whetstone train` writes to", "RUN", positional=True)]
    every: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Flag("only steps that are multiples of N, and the first and the last", "N"),
    ] = None
    patience: Annotated[
        float,
        Meta(gt=0),
        Flag("end after this time without a new checkpoint and without a trainer", "S"),
    ] = 600.0
    wait: Annotated[
        float,
        Meta(ge=0),
        Flag("longest wait for the start of the run (default: 0, it must have started)", "S"),
    ] = 0.0
    parent: Annotated[int | None, Flag(argparse.SUPPRESS)] = (
        None  # process id of the training that started this command
    )
    benchmark: Annotated[
        tuple[str, ...], Flag("benchmarks instead of the run's own sets, separated by commas", "NAMES")
    ] = ()
    data: Annotated[tuple[str, ...], Flag("as for `whetstone eval`", "[NAME=]FILE", repeat=True)] = ()
    limit: Annotated[int, Meta(ge=0), Flag("only the first N problems of a benchmark", "N")] = 0
    threads: Annotated[int, Meta(ge=0), Flag("threads of torch; 0: one per core", "N")] = 1
    workers: Annotated[int, Meta(ge=0), Flag("workers of the judge", "N")] = 1
    device: Annotated[str | None, Flag("auto, cpu, cuda, cuda:N (default: the recipe's)", "NAME")] = None
    nice: Annotated[int, Meta(ge=0), Flag("niceness, so that training has priority", "N")] = 10


def add_watch(actions: Any) -> None:
    """Declare the action."""
    add_command(
        actions,
        "watch",
        run_watch,
        help="evaluate a run's checkpoints while it trains",
        description=_DESCRIPTION,
    )


def run_watch(args: _Watching) -> int:
    """Run the action."""
    if not args.benchmark and (args.data or args.limit):
        raise UserError("--data and --limit are for --benchmark; the run's own sets are always complete")
    from rich.console import Console

    from whetstone.run.display import Display
    from whetstone.run.separate_evaluation import watch

    with Display(Console()) as display:
        count = watch(
            Path(args.run),
            display,
            extra=(lambda recipe: _benchmark_sets(args, recipe)) if args.benchmark else None,
            every=args.every,
            threads=args.threads,
            workers=args.workers,
            device=args.device,
            patience_s=args.patience,
            wait_s=args.wait,
            nice=args.nice,
            parent=args.parent,
        )
        display.log(f"{args.run}: checkpoints evaluated: {count}")
    return 0


def _benchmark_sets(args: _Watching, recipe: Recipe) -> list[EvaluationSet]:
    """Return the benchmarks with their own prompts. The set ``problems`` uses the prompt of the recipe."""
    from whetstone.evaluate.benchmarks import load_benchmark
    from whetstone.run.evaluation import EvaluationSet

    measured: list[EvaluationSet] = []
    plan = recipe.evaluation.plan(recipe.sampling, recipe.seed)
    for name, data in benchmark_files(args.data, list(args.benchmark)).items():
        benchmark = load_benchmark(name, data, limit=args.limit)
        settings = recipe.environment
        # A benchmark has a prompt of its own. `problems` is a set like those of training.
        if name != "problems":
            benchmark_prompt = {"prompt": benchmark.prompt, "extraction": "program", "prefix": ""}
            settings = settings.model_copy(update=benchmark_prompt)
        title = name.replace(":", "-")
        measured.append(EvaluationSet(title, benchmark.problems, settings, plan))
    return measured
