"""``whetstone data strengthen``: add tests to problems whose tests accept wrong programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from whetstone.cli.data_steps import StepFiles
from whetstone.cli.flags import add_command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.problem import Problem
from whetstone.core.progress import Progress
from whetstone_curation.strengthen.strengthener import Effort, StrengthenOutcome
from whetstone_curation.strengthen.whole_set import (
    StrengthenTally,
    count_problems,
    journal_path,
    strengthen_set,
)

_EXAMPLES = """\
examples:
  whetstone data strengthen sets/valid --out sets/strong
  whetstone data strengthen sets/valid --out sets/strong --tests 16 --budget 0.2 --mutants 120
  whetstone data strengthen sets/valid --out sets/strong --programs replies.jsonl

New inputs are boundary values, changed inputs and draws of the types that the existing ones have. All
references that the tests accept must give the same answer. A new test is kept if it rejects a wrong program
that the tests accept, a mutant of a reference or a known wrong program, or if its input or answer is of a
new kind.

--programs gives programs of the problems, such as replies of a model. Every new test is passed by the correct
ones ("correct": true) and, if possible, rejects the wrong ones (false). Programs without a label vote: an
input is dropped if most of those that the tests accept contradict the references on it.

No problem is dropped. The same command resumes.
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    add_command(
        actions,
        "strengthen",
        strengthen,
        help="add tests that reject wrong programs which the present tests accept",
        description="Make new inputs from those of the tests. The references "
        "give the expected outputs. Add those tests that reject wrong programs which the "
        "present tests accept.",
        epilog=_EXAMPLES,
    )


def strengthen(files: StepFiles, effort: Effort, machine: JudgeMachine) -> int:
    """Add tests. Raises UserError for unreadable input and unwritable output."""
    files.check()
    problems = count_problems(files.set)
    with Progress() as progress, machine.judge() as judge:
        work = progress.begin("strengthening", problems)

        def watch(problem: Problem, found: StrengthenOutcome) -> None:
            work.advance()

        try:
            tally = strengthen_set(
                files.set,
                files.out,
                judge,
                effort,
                problems,
                workers=machine.workers,
                minimum_tier=machine.minimum_tier,
                packages=machine.environment,
                watch=watch,
            )
        except KeyboardInterrupt:
            progress.say(f"results so far are in {journal_path(files.out)}; the same command resumes")
            raise
    _print_summary(files.out, tally, Console())
    return 0


def _print_summary(out: str, tally: StrengthenTally, console: Console) -> None:
    line = f"{out}: {tally.stronger} of {tally.problems} problems got {tally.tests} new tests"
    console.print(line, highlight=False, soft_wrap=True)
    for title, (tried, before, after) in (("mutants", tally.mutants), ("known wrong programs", tally.wrong)):
        if tried:
            console.print(
                f"  {title} rejected: {before} of {tried} before, {after} now",
                highlight=False,
                soft_wrap=True,
            )
    for reason, number in sorted(tally.why.items()):
        console.print(f"  unchanged, {reason}: {number}", highlight=False, soft_wrap=True)
