"""``whetstone data validate``: find out whether the tests of a set are right, and keep what is."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.judge_options import add_judge_options, add_workers_option, judge_settings
from whetstone.cli.options import add_replace_option
from whetstone.data.builtin import SET_NAMES
from whetstone.data.dataset import check_step, place_of
from whetstone.data.validate.policy import Policy, read_policy
from whetstone.data.validate.reasons import NOT_AS_MEANT, REASONS, check_reason
from whetstone.data.validate.validator import Outcome
from whetstone.data.validate.whole_set import Tally, count_tests, journal_path, validate_set
from whetstone.errors import UserError
from whetstone.judge import Judge
from whetstone.outputs import check_outputs
from whetstone.problem import Problem
from whetstone.progress import Progress

_EXAMPLES = """\
examples:
  whetstone data validate problems.jsonl
  whetstone data validate raw --out clean --mutants 20 --mark several_answers
  whetstone data validate raw --out clean.parquet --policy strict.yaml

Without --out, status 1 says that something is not as meant. With --out, an interrupted validation
goes on where it was when the same command is given again.

what can be wrong with a problem, and what is done about it unless a policy says otherwise:
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "validate",
        help="judge references, wrong programs and mutants; say what is wrong, keep what is right",
        description="Run every reference, every program known to be wrong, mutants of a reference and "
        "programs that solve nothing against the tests, and look at statement and tests. Report what is "
        "wrong, or write the problems that are right to --out, with a decision and its reason for each.",
        epilog=_EXAMPLES + "\n".join(f"  {name:23}{r.treatment:7}{r.meaning}" for name, r in REASONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        metavar="SET",
        help=f"a problem file, a dataset folder, or one of {', '.join(SET_NAMES)}",
    )
    parser.add_argument("--out", metavar="DIR_OR_FILE", help="write the kept problems: a dataset, or a file")
    parser.add_argument("--decisions", metavar="FILE", help="also write every decision there, as JSON lines")
    add_replace_option(parser)
    _policy_options(parser)
    group = parser.add_argument_group("machine")
    add_workers_option(group)
    add_judge_options(group)


def _policy_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("policy")
    group.add_argument("--policy", metavar="FILE", help="bounds and treatments, as YAML")
    group.add_argument(
        "--repeats", type=int, metavar="N", help="runs of each reference, to find flaky ones (default: 2)"
    )
    group.add_argument("--mutants", type=int, metavar="N", help="of a reference; 0 tries none (default: 8)")
    for treatment, does in (
        ("drop", "drop problems"),
        ("mark", "only mark problems"),
        ("ignore", "overlook"),
    ):
        group.add_argument(
            f"--{treatment}",
            action="append",
            default=[],
            metavar="REASON",
            help=f"{does} with this defect; repeatable",
        )


def run(args: argparse.Namespace) -> int:
    """Run the action. Status 0, or, without ``--out``, 1 when something is not as meant."""
    if args.workers < 0:
        raise UserError(f"--workers is {args.workers}; give 0 (one for each core) or more")
    policy, console = _policy(args), Console()
    read = [args.policy] if args.policy else []
    if args.out:
        check_step(args.name, args.out, args.decisions, inputs=read, replace=args.replace)
    else:
        check_outputs(args.decisions, inputs=[place_of(args.name), *read], replace=args.replace)
    with Progress() as progress:
        with progress.work("reading") as reading:
            shared = count_tests(args.name, reading.advance)
        validating = progress.begin("validating", shared.problems)

        def watch(problem: Problem, outcome: Outcome) -> None:
            validating.advance()
            if args.out is None:
                _print_amiss(outcome, console)

        with Judge(args.workers, **judge_settings(args)) as judge:
            try:
                tally = validate_set(
                    args.name,
                    judge,
                    policy,
                    shared,
                    out=args.out,
                    decisions=args.decisions,
                    workers=args.workers,
                    environment=judge.environment,
                    watch=watch,
                )
            except KeyboardInterrupt:
                if args.out is not None:
                    progress.say(f"what was found is in {journal_path(args.out)}: run again to go on")
                raise
    _print_summary(tally, console)
    return 1 if args.out is None and tally.amiss else 0


def _policy(args: argparse.Namespace) -> Policy:
    """The policy that the options ask for. Raises UserError."""
    policy = read_policy(args.policy) if args.policy else Policy()
    treatments = dict(policy.treatments)
    named: dict[str, str] = {}
    for treatment in ("drop", "mark", "ignore"):
        for reason in getattr(args, treatment):
            check_reason(reason, f"--{treatment}")
            if named.setdefault(reason, treatment) != treatment:
                raise UserError(f"--{treatment} {reason}: it is already given to --{named[reason]}")
            treatments[reason] = treatment
    given = {name: value for name in ("repeats", "mutants") if (value := getattr(args, name)) is not None}
    return policy.changed(treatments=treatments, **given)


def _print_amiss(outcome: Outcome, console: Console) -> None:
    for flag in outcome.flags:
        if flag.reason in NOT_AS_MEANT:
            line = Text.assemble((outcome.problem_id, "bold"), f": {flag.reason}: {flag.detail}")
            console.print(line, soft_wrap=True)


def _print_summary(tally: Tally, console: Console) -> None:
    """How many problems were dropped and marked for which reason, and of how many."""
    table = Table("reason", "dropped", "marked", "meaning", box=None, pad_edge=False)
    for reason in REASONS:
        dropped, marked = tally.drops[reason], tally.marks[reason]
        if dropped or marked:
            table.add_row(reason, str(dropped or ""), str(marked or ""), REASONS[reason].meaning)
    words = [
        f"{tally.problems} problems: {tally.kept} kept, {tally.dropped} dropped, {tally.amiss} not as meant"
    ]
    if tally.unconfirmed:
        words.append(f"{tally.unconfirmed} have no accepted reference, so nothing confirms their tests")
    if tally.mutants:
        words.append(f"{tally.mutants_refused} of {tally.mutants} mutants refused")
    if table.row_count:
        console.print(table)
    console.print(Text("; ".join(words), style="bold"), soft_wrap=True)
