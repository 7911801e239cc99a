"""``whetstone eval``: measure a model on benchmarks, or compare two evaluations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from whetstone.cli.eval_tasks import measure_benchmarks
from whetstone.cli.flags import add_commands, command, set_command
from whetstone.cli.package_commands import add_package_actions
from whetstone.core.flag import Flag

EXAMPLES = """\
examples:
  whetstone eval --model models/SmolLM2-135M-Instruct --benchmark humaneval --data HumanEval.jsonl.gz --out he
  whetstone eval --endpoint http://127.0.0.1:8000/v1 --n 4 --temperature 0.6 \\
      --benchmark humaneval,mbpp --data humaneval=HumanEval.jsonl.gz \\
      --data mbpp=sanitized-mbpp.json --out both
  whetstone eval --model runs/tiny/checkpoints/step-40 --benchmark problems \\
      --data micro:heldout --recipe runs/tiny/recipe.yaml
  whetstone eval --plan archer --endpoint http://127.0.0.1:8000/v1 --out archer
  whetstone eval compare before after --list
  whetstone report before after --out comparison.html
  whetstone eval rejudge both --harness official

Every requested reply counts. A reply that failed (endpoint not reachable, prompt too long) or could not be
judged counts as wrong, and is listed. The same command with the same --out resumes an interrupted
evaluation. The key of an endpoint is read from WHETSTONE_API_KEY or OPENAI_API_KEY.
"""


_WATCH = """\
Evaluate the checkpoints of a run as they are written, in this process, so that training does not wait.
`evaluation.process: separate` in a recipe starts this command; by hand it evaluates the checkpoints that are
left after training. Results go to RUN/evaluations and appear in `whetstone report RUN`. The same command
resumes. It ends after the run's last checkpoint."""


class _WatchedRun(Struct, frozen=True, kw_only=True):
    """The run whose checkpoints are evaluated."""

    run: Annotated[str, Flag("the folder that `whetstone train` writes to", "RUN", positional=True)]
    threads: Annotated[int, Meta(ge=0), Flag("threads of torch; 0: one per core", "N")] = 1
    parent: Annotated[int | None, Flag(argparse.SUPPRESS)] = (
        None  # process id of the training that started this command
    )


class _ComparedEvaluations(Struct, frozen=True, kw_only=True):
    """Two evaluations."""

    a: Annotated[str, Flag("the --out folder of one evaluation", "A", positional=True)]
    b: Annotated[str, Flag("the --out folder of the other; the difference is B - A", "B", positional=True)]
    list: Annotated[bool, Flag("list the problems gained and lost")] = False


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "eval",
        help="",  # in `VERBS`
        description="Sample n replies to every problem, judge each in the sandbox, and report pass@k with "
        "95% intervals. `whetstone eval compare A B` compares two output folders problem by "
        "problem.",
        epilog=EXAMPLES,
    )
    set_command(parser, measure_benchmarks)
    actions = parser.add_subparsers(dest="action", metavar="compare | rejudge | rating | watch")
    add_commands(actions, sys.modules[__name__])
    add_package_actions(actions, "eval")


@command("watch", help="evaluate a run's checkpoints in another process", description=_WATCH)
def watch_run(watched: _WatchedRun) -> int:
    """Evaluate the checkpoints of a run."""
    from rich.console import Console

    from whetstone.run.display import Display
    from whetstone.run.separate_evaluation import watch

    with Display(Console()) as display:
        count = watch(Path(watched.run), display, threads=watched.threads, parent=watched.parent)
        display.log(f"{watched.run}: checkpoints evaluated: {count}")
    return 0


@command("compare", help="paired difference of two evaluations, with its interval")
def compare(evaluations: _ComparedEvaluations) -> int:
    """Compare two evaluations."""
    from whetstone.evaluate.tables import print_comparison

    print_comparison(evaluations.a, evaluations.b, list_problems=evaluations.list)
    return 0
