"""``whetstone data difficulty``: how often a model solves each problem, and the ones worth training on."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from whetstone.cli.data_steps import add_set_and_out, write_step
from whetstone.cli.eval_options import add_reply_options
from whetstone.data.dataset import check_step
from whetstone.data.pass_rate import keep_by_pass_rate, parse_keep
from whetstone.errors import UserError
from whetstone.evaluate.planned import DEFAULT_N
from whetstone.progress import Progress

_EXAMPLES = """\
examples:
  whetstone data difficulty sets/clean --out sets/rated --model models/Qwen3-8B --n 8
  whetstone data difficulty sets/clean --out sets/rated --n 16 --keep 2..12 \\
      --endpoint http://127.0.0.1:8000/v1
  whetstone data difficulty sets/clean --out sets/rated --from-eval evals/clean

The replies are those of `whetstone eval`, in a folder of its form beside OUT: an interrupted run goes on when
the same command is given again, and another --keep needs no new reply. A problem of which no reply could be
judged is kept and marked.
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "difficulty",
        help="measure a model's pass rate on each problem; keep what is solved sometimes",
        description="Draw n replies to every problem, judge them, write the pass rate into meta.pass_rate, "
        "and keep the problems whose count of right replies is within bounds.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_set_and_out(parser)
    parser.add_argument(
        "--keep", metavar="LO..HI", help="right replies with which a problem stays (default: 1..n-1)"
    )
    parser.add_argument(
        "--from-eval",
        metavar="DIR",
        help="take the pass rates of a finished `whetstone eval --out DIR`; no reply is drawn",
    )
    parser.add_argument(
        "--samples", metavar="DIR", help="folder of the replies (default: OUT.eval); what is there goes on"
    )
    parser.add_argument("--restart", action="store_true", help="drop the replies that are in --samples")
    add_reply_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError for what cannot be read, asked or written."""
    from whetstone.evaluate.pass_rates import read_pass_rates

    check_step(args.set, args.out, replace=args.replace)
    folder = args.from_eval
    if folder is None:
        parse_keep(args.keep, DEFAULT_N if args.n is None else args.n)
        folder = args.samples or f"{args.out.rstrip('/')}.eval"
        _sample(args, folder)
    elif args.model or args.endpoint:
        raise UserError("--from-eval takes pass rates that were measured; leave out --model and --endpoint")
    rates = read_pass_rates(folder)
    with Progress(Console()) as progress:
        step = keep_by_pass_rate(rates.by_id, parse_keep(args.keep, rates.n))
        write_step(args.set, args.out, step, progress)
    return 0


def _sample(args: argparse.Namespace, folder: str) -> None:
    """Evaluate the model on the set, as ``whetstone eval --benchmark problems`` does."""
    from whetstone.cli.eval import measure_benchmarks

    what = {
        "benchmark": "problems",
        "plan": None,
        "json": False,
        "price": None,
        "data": [args.set],
        "limit": 0,
        "out": folder,
        "grading": "ours",
    }
    measure_benchmarks(argparse.Namespace(**{**vars(args), **what}))
