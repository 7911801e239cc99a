"""``whetstone eval``: measure a model on benchmarks, or compare two measurements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone.cli.eval_options import (
    add_grading_option,
    add_measuring_options,
    endpoint_settings,
)
from whetstone.cli.eval_rating import add_rating_parser, run_rating
from whetstone.cli.eval_tasks import tasks_of
from whetstone.cli.eval_watch import add_watch_parser, run_watch
from whetstone.cli.judge_options import add_workers_option
from whetstone.cli.options import add_replace_option
from whetstone.errors import UserError
from whetstone.outputs import check_outputs

if TYPE_CHECKING:
    from whetstone.evaluate.measure import Model

EXAMPLES = """\
examples:
  whetstone eval --model models/SmolLM2-135M-Instruct --benchmark humaneval --data HumanEval.jsonl.gz --out he
  whetstone eval --endpoint http://127.0.0.1:8000/v1 --benchmark humaneval,mbpp --n 4 --temperature 0.6 \\
      --data humaneval=HumanEval.jsonl.gz --data mbpp=sanitized-mbpp.json --out both
  whetstone eval --model runs/tiny/checkpoints/step-40 --benchmark problems --data micro:heldout \\
      --recipe runs/tiny/recipe.yaml
  whetstone eval --plan archer --endpoint http://127.0.0.1:8000/v1 --out archer
  whetstone eval compare before after --list
  whetstone eval page before after --out comparison.html
  whetstone eval rejudge both --harness official

Every reply asked for counts: one that could not be had (a dead endpoint, a prompt that is too long) or
not be judged is not right, and is shown. The same command with the same --out goes on where it was
interrupted. An endpoint's key is read from WHETSTONE_API_KEY or OPENAI_API_KEY.
"""


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "eval",
        description="Draw n replies to every problem, judge each in the sandbox, and report pass@k with 95% "
        "intervals. `whetstone eval compare A B` compares two output folders problem by problem.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(action="measure")
    add_measuring_options(parser)
    actions = parser.add_subparsers(
        dest="action", metavar="compare | page | rejudge | rating | watch | benchmarks | plans"
    )
    actions.add_parser("benchmarks", help="the benchmarks by name, and the data each is read from")
    actions.add_parser("plans", help="the plans that ship, by name")
    add_watch_parser(actions)
    add_rating_parser(actions)
    compare = actions.add_parser("compare", help="paired difference of two evaluations, with its interval")
    compare.add_argument("a", help="the --out folder of one evaluation")
    compare.add_argument("b", help="that of the other; the difference is b - a")
    compare.add_argument("--list", action="store_true", help="name the problems gained and lost")
    _add_rejudge(actions)
    _add_page(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    if args.action == "compare":
        from whetstone.evaluate.compare import print_comparison

        print_comparison(args.a, args.b, list_problems=args.list)
        return 0
    if args.action == "rejudge":
        return _rejudge(args)
    if args.action == "page":
        from whetstone.report.evaluation_page import write_evaluation_page

        if args.replies < 1:
            raise UserError("--replies is a count of at least 1")
        if args.out:
            read = [folder for folder in (args.folder, args.other) if folder]
            files = [file for folder in read for file in Path(folder).rglob("*.json*")]
            check_outputs(args.out, inputs=files, replace=args.replace)
        print(write_evaluation_page(args.folder, args.other, args.out, replies=args.replies))
        return 0
    if args.action == "benchmarks":
        from whetstone.evaluate.tables import print_benchmarks

        print_benchmarks()
        return 0
    if args.action == "plans":
        from whetstone.evaluate.tables import print_plans

        print_plans()
        return 0
    if args.action == "watch":
        return run_watch(args)
    if args.action == "rating":
        return run_rating(args)
    return measure_benchmarks(args)


def _add_rejudge(actions: Any) -> None:
    parser = actions.add_parser(
        "rejudge",
        help="judge stored replies again by other rules, and list what differs",
        description="Nothing is generated: the replies in samples.jsonl are judged again. Prints the result, "
        "and every reply that only one set of rules accepts; differences.jsonl holds them all.",
    )
    parser.add_argument("folder", metavar="DIR", help="the --out folder of an evaluation that has ended")
    add_grading_option(parser)
    parser.add_argument(
        "--data",
        action="append",
        metavar="NAME=FILE",
        help="where a benchmark's file is now, if it was moved",
    )
    parser.add_argument("--out", metavar="DIR", help="where to store it (default: DIR-HARNESS)")
    parser.add_argument("--restart", action="store_true", help="drop what is in --out instead of going on")
    add_workers_option(parser)


def _add_page(actions: Any) -> None:
    parser = actions.add_parser(
        "page",
        help="one HTML page of an evaluation, or of two side by side",
        description="Write a page that needs nothing else: the figures, and every problem with its prompt, "
        "replies, programs and cases; of two evaluations what was gained and lost.",
    )
    parser.add_argument("folder", metavar="DIR", help="the --out folder of an evaluation that has ended")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="that of another, to be compared with it")
    parser.add_argument("--out", metavar="FILE", help="default: DIR/evaluation.html, or DIR/comparison.html")
    parser.add_argument(
        "--replies",
        type=int,
        default=4,
        metavar="N",
        help="replies of each problem that it holds (default: 4)",
    )
    add_replace_option(parser)


def _rejudge(args: argparse.Namespace) -> int:
    from whetstone.evaluate.rejudge import rejudge

    data: dict[str, str] = {}
    for text in args.data or ():
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise UserError(f"--data {text}: give NAME=FILE, NAME being a benchmark of {args.folder}")
        data[name] = path
    if args.workers < 0:
        raise UserError("--workers is a count of at least 0")
    rejudge(args.folder, args.grading, data=data, out=args.out, workers=args.workers, restart=args.restart)
    return 0


def measure_benchmarks(args: argparse.Namespace) -> int:
    """Measure as ``args`` say, which have every option of the verb. Raises UserError."""
    # Everything a person can get wrong is checked before torch is loaded or an endpoint is asked.
    from rich.console import Console

    from whetstone.evaluate.measure import measure
    from whetstone.evaluate.summary import prices_of, summary

    if not (args.model or args.endpoint):
        raise UserError(
            "--model is missing: a model folder, a .gguf file or a hub id; or --endpoint: a server's address"
        )
    if min(args.limit, args.threads or 0, args.workers) < 0:
        raise UserError("--limit, --threads and --workers are counts of at least 0")
    tasks = tasks_of(args)
    console = Console(stderr=True) if args.json else None
    results = measure(
        tasks,
        _model(args),
        workers=args.workers,
        minimum_tier=args.minimum_tier,
        environment=args.environment,
        out=args.out,
        restart=args.restart,
        prices=prices_of(args.price),
        console=console,
    )
    if args.json:
        print(json.dumps({name: summary(found) for name, found in results.items()}))
    return 0


def _model(args: argparse.Namespace) -> Model:
    """The endpoint, or the model in this process; options of the other are refused."""
    ours = {"revision": args.revision, "dtype": args.dtype, "device": args.device, "threads": args.threads}
    ours, theirs = {k: v for k, v in ours.items() if v is not None}, endpoint_settings(args)
    if args.endpoint:
        if ours or args.max_prompt_tokens is not None:
            raise UserError(
                "--revision, --dtype, --device, --threads and --max-prompt-tokens are for a model in this "
                "process; with --endpoint the server decides"
            )
        from whetstone.evaluate.replies.endpoint import Endpoint, Settings

        return Endpoint(args.endpoint, args.model, Settings(**theirs))
    if theirs:
        raise UserError(
            "--concurrency, --request-timeout, --silence, --patience, --body and --thinking are for "
            "--endpoint"
        )
    from whetstone.evaluate.embedded import EmbeddedModel
    from whetstone.evaluate.replies.writer import Weights

    return EmbeddedModel(Weights(args.model, **ours))
