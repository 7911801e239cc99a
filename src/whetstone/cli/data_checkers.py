"""``whetstone data checkers``: a model writes checkers for problems with several right answers."""

from __future__ import annotations

import argparse
import os
from typing import Any

from rich.console import Console

from whetstone.cli.data_steps import add_set_and_out
from whetstone.cli.judge_options import add_judge_options, add_workers_option, judge_settings
from whetstone.cli.model_writing import add_writing_options, model_of, shown_on
from whetstone.data.dataset import check_step
from whetstone.errors import UserError
from whetstone.judge import Judge
from whetstone.progress import Progress

_EXAMPLES = """\
examples:
  whetstone data checkers sets/raw --out sets/checked --endpoint http://127.0.0.1:8000/v1
  whetstone data checkers sets/raw --out sets/checked --endpoint http://127.0.0.1:8000/v1 --attempts 4 \\
      --max-tokens 16384 --body '{"chat_template_kwargs": {"enable_thinking": true}}'

A checker is kept when it accepts every reference that runs and the expected outputs in any layout; refuses
programs that solve nothing, known wrong programs, garbage, and most mutants and spoiled answers; and is
freer than the comparison. It is only ever run in the sandbox. Give --out to `whetstone data validate` next,
which drops the problems that got none. Interrupted, the same command goes on and asks for nothing twice.
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "checkers",
        help="have a model write checkers for problems with several right answers; keep those that hold",
        description="Ask a model for a checker of every problem that allows several answers and has none, "
        "try it on references, wrong programs, mutants and spoiled answers, and set it on the problem if it "
        "holds.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_set_and_out(parser)
    group = parser.add_argument_group("model")
    add_writing_options(parser, group, 2, "replies per problem, at most")
    group.add_argument("--seed", type=int, default=0, help="of the replies (default: 0)")
    machine = parser.add_argument_group("machine")
    add_workers_option(machine)
    add_judge_options(machine)


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError for what cannot be read, asked or written."""
    from whetstone.data.checkers.journal import Journal
    from whetstone.evaluate.checker_writing import CheckerWriting, Written, journal_path

    check_step(args.set, args.out, replace=args.replace)
    if not args.endpoint:
        raise UserError("--endpoint is missing: the address of a server, such as http://127.0.0.1:8000/v1")
    if args.workers < 0 or args.attempts < 1:
        raise UserError("--workers is 0 (one for each core) or more, --attempts 1 or more")
    model = model_of(args)
    console, threads = Console(), 2 * (args.workers or len(os.sched_getaffinity(0)))
    with Journal(journal_path(args.out), model.how) as journal, Progress() as progress:
        if journal.replies:
            progress.say(f"going on: {len(journal.replies)} replies are there")
        watch, say = shown_on(progress)
        with Judge(args.workers, **judge_settings(args)) as judge:
            writing = CheckerWriting(args.set, judge, model.writer, model.plan, model.label, say=say)
            written: Written = writing.run(args.out, journal, threads, watch)
        journal.remove()
    line = f"{args.out}: {written.problems} problems; {written.kept} of {written.needed} got a checker"
    console.print(line, highlight=False, soft_wrap=True)
    for reason, number in sorted(written.why.items()):
        console.print(f"  {reason}: {number}", highlight=False, soft_wrap=True)
    return 0
