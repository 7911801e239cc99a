"""``whetstone data validate``: check whether the tests of a set are correct, and keep the valid problems."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.flags import command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.flag import Flag
from whetstone.core.problem import Problem
from whetstone.core.progress import Progress
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.dataset import check_step
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import FAILS_CHECK, REASONS
from whetstone.data.validate.validator import ValidationOutcome
from whetstone.data.validate.whole_set import ValidationTally, count_tests, journal_path, validate_set

_EXAMPLES = """\
examples:
  whetstone data validate problems.jsonl
  whetstone data validate raw --out clean --mutants 20 --mark several_answers
  whetstone data validate raw --out clean.parquet --fewest-tests 8 --drop few_tests

Without --out, exit status 1 means that a problem is not as intended. With --out, it means that a kept problem
is not as intended (only marked), or that none was kept; the same command resumes an interrupted validation.

faults of problems, and how each is treated unless an option changes it:
"""


# The most problems of a set whose findings are printed although they are also written to --out.
_MOST_LISTED = 2000


class ValidateFiles(Section):
    """The set to validate, and the outputs."""

    set: Annotated[NonEmpty, Flag(SET_HELP, "SET", positional=True)]
    out: Annotated[NonEmpty | None, Flag("write the kept problems to a dataset or a file", "DIR_OR_FILE")] = (
        None
    )
    replace: Annotated[bool, Flag("replace an existing output")] = False

    def check(self) -> None:
        """Raise UserError if the output cannot be written."""
        if self.out:
            check_step(self.set, self.out, replace=self.replace)


@command(
    "validate",
    help="judge references, wrong programs and mutants; report faulty problems, keep valid ones",
    description="Run the references, known wrong programs, mutants of a reference and programs that "
    "solve nothing against the tests, and check the statement and the tests. Report the "
    "faulty problems, or write the valid ones to --out, with a decision and a reason for "
    "each problem.",
    epilog=_EXAMPLES + "\n".join(f"  {name:26}{r.treatment:6}{r.meaning}" for name, r in REASONS.items()),
)
def validate(files: ValidateFiles, policy: Policy, machine: JudgeMachine) -> int:
    """Validate a set.

    Returns 1 if a problem is not as intended; with ``out``, only if it was kept, or if none was. Else 0.
    """
    console = Console()
    files.check()
    with Progress() as progress:
        with progress.work("reading") as reading:
            shared = count_tests(files.set, reading.advance)
        validating = progress.begin("validating", shared.problems)

        def watch(problem: Problem, outcome: ValidationOutcome) -> None:
            validating.advance()
            shown = outcome.flags if files.out is None or shared.problems <= _MOST_LISTED else ()
            for flag in (flag for flag in shown if flag.reason in FAILS_CHECK):
                line = Text.assemble((outcome.problem_id, "bold"), f": {flag.reason}: {flag.detail}")
                console.print(line, soft_wrap=True)

        with machine.judge() as judge:
            try:
                tally = validate_set(
                    files.set,
                    judge,
                    policy,
                    shared,
                    out=files.out,
                    workers=machine.workers,
                    environment=judge.environment,
                    watch=watch,
                )
            except KeyboardInterrupt:
                if files.out is not None:
                    progress.say(f"results so far are in {journal_path(files.out)}; the same command resumes")
                raise
    _print_summary(tally, console)
    if files.out is None:
        return 1 if tally.amiss else 0
    return 1 if tally.kept_amiss or not tally.kept else 0


def _print_summary(tally: ValidationTally, console: Console) -> None:
    """Print the number of dropped and marked problems by reason."""
    table = Table("reason", "dropped", "marked", "meaning", box=None, pad_edge=False)
    for reason in REASONS:
        dropped, marked = tally.drops[reason], tally.marks[reason]
        if dropped or marked:
            table.add_row(reason, str(dropped or ""), str(marked or ""), REASONS[reason].meaning)
    parts = [
        f"{tally.problems} problems: {tally.kept} kept, {tally.dropped} dropped, {tally.amiss} not as "
        "intended"
    ]
    if tally.unconfirmed:
        parts.append(f"{tally.unconfirmed} have no accepted reference, so their tests are unconfirmed")
    if tally.mutants:
        parts.append(f"{tally.mutants_refused} of {tally.mutants} mutants rejected")
    if table.row_count:
        console.print(table)
    console.print(Text("; ".join(parts), style="bold"), soft_wrap=True)
