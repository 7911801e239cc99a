"""``whetstone data strengthen``: new tests where the tests of a problem accept wrong programs."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console

from whetstone.cli.data_steps import add_set_and_out
from whetstone.cli.judge_options import add_judge_options, add_workers_option, judge_settings
from whetstone.cli.model_writing import add_writing_options, model_of, shown_on
from whetstone.data.dataset import check_step
from whetstone.data.strengthen.strengthener import Effort, Strengthened
from whetstone.data.strengthen.whole_set import Tally, Written, count_problems, journal_path, strengthen_set
from whetstone.errors import UserError
from whetstone.judge import Judge
from whetstone.problem import Problem
from whetstone.progress import Progress

_EXAMPLES = """\
examples:
  whetstone data strengthen sets/valid --out sets/strong
  whetstone data strengthen sets/valid --out sets/strong --tests 16 --budget 0.2 --mutants 120
  whetstone data strengthen sets/valid --out sets/strong --endpoint http://127.0.0.1:8000/v1

New inputs are like those that are there, within what the statement says. Every reference that the tests
accept has to answer them alike; a test is kept where it refuses a mutant of a reference, a program that sees
a part of its input, or a known wrong one, that the tests accept, or where its input or answer is of a kind
that no test had. With --endpoint, a model writes generators of further inputs, which run in the sandbox only,
and whose inputs are held to the same rules. No problem is dropped. Interrupted, the same command goes on.
"""
_USUAL = Effort()


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "strengthen",
        help="add tests that refuse wrong programs which the tests accept",
        description="Make new inputs from those that the tests have and from what the statement says, label "
        "them by the references, and add those that refuse programs which the tests accept and should not.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_set_and_out(parser)
    group = parser.add_argument_group("effort")
    _number(group, "--inputs", _USUAL.inputs, "inputs made for a problem")
    _number(group, "--mutants", _USUAL.mutants, "mutants of its first reference")
    _number(group, "--rounds", _USUAL.rounds, "in each, a test may be found for a mutant")
    _number(group, "--tests", _USUAL.most, "new tests of a problem, at most")
    group.add_argument(
        "--budget",
        type=float,
        default=_USUAL.budget_s,
        metavar="S",
        help="CPU seconds that they take the slowest reference, together, at most "
        f"(default: {_USUAL.budget_s:g})",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs (default: 0)")
    model = parser.add_argument_group("model that writes generators, with --endpoint")
    add_writing_options(parser, model, 1, "generators per problem")
    machine = parser.add_argument_group("machine")
    add_workers_option(machine)
    add_judge_options(machine)


def _number(group: Any, option: str, usual: int, meaning: str) -> None:
    group.add_argument(option, type=int, default=usual, metavar="N", help=f"{meaning} (default: {usual})")


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError for what cannot be read or written."""
    check_step(args.set, args.out, replace=args.replace)
    if args.workers < 0:
        raise UserError(f"--workers is {args.workers}; give 0 (one for each core) or more")
    effort, settings = _effort(args), judge_settings(args)
    problems = count_problems(args.set)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress())
        asked = _Asked() if not args.endpoint else _ask(args, stack, progress)
        judge = stack.enter_context(Judge(args.workers, **settings))
        working = progress.begin("strengthening", problems)

        def watch(problem: Problem, found: Strengthened) -> None:
            working.advance()

        try:
            tally = strengthen_set(
                args.set,
                args.out,
                judge,
                effort,
                problems,
                workers=args.workers,
                minimum_tier=args.minimum_tier,
                packages=args.environment,
                generators=asked.label,
                written=asked.inputs,
                watch=watch,
            )
        except KeyboardInterrupt:
            progress.say(f"what was found is in {journal_path(args.out)}: run again to go on")
            raise
        if asked.journal is not None:
            asked.journal.remove()
    _print_summary(args.out, tally, Console())
    return 0


class _Asked(Struct, frozen=True):
    """Generators that a model wrote, and who; without an endpoint, none."""

    label: str = ""
    inputs: Written = lambda problem, answers: ()
    journal: Any = None


def _ask(args: argparse.Namespace, stack: ExitStack, progress: Progress) -> _Asked:
    """Have the generators written. Raises UserError for an endpoint that answers nothing."""
    from whetstone.data.checkers.journal import Journal
    from whetstone.evaluate.generator_writing import Generators
    from whetstone.evaluate.generator_writing import journal_path as replies_path

    if args.attempts < 1:
        raise UserError(f"--attempts is {args.attempts}; give 1 or more")
    model = model_of(args)
    journal = stack.enter_context(Journal(replies_path(args.out), model.how))
    watch, say = shown_on(progress)
    generators = Generators(args.set, model.writer, model.plan, journal, say=say)
    generators.ask(watch)
    return _Asked(model.label, generators.inputs, journal)


def _effort(args: argparse.Namespace) -> Effort:
    given = {
        "inputs": args.inputs,
        "mutants": args.mutants,
        "rounds": args.rounds,
        "most": args.tests,
        "budget_s": args.budget,
        "seed": args.seed,
    }
    for name, value in given.items():
        try:
            msgspec.convert({name: value}, Effort)
        except msgspec.ValidationError:
            option = {"most": "--tests", "budget_s": "--budget"}.get(name, f"--{name}")
            raise UserError(f"{option} is {value}; give more") from None
    return Effort(**given)


def _print_summary(out: str, tally: Tally, console: Console) -> None:
    line = f"{out}: {tally.stronger} of {tally.problems} problems got {tally.tests} new tests"
    console.print(line, highlight=False, soft_wrap=True)
    for title, (tried, before, after) in (("mutants", tally.mutants), ("known wrong programs", tally.wrong)):
        if tried:
            console.print(
                f"  {title} refused: {before} of {tried} before, {after} now", highlight=False, soft_wrap=True
            )
    for reason, number in sorted(tally.why.items()):
        console.print(f"  as they were, {reason}: {number}", highlight=False, soft_wrap=True)
