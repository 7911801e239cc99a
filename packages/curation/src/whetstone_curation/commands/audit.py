"""``whetstone data audit``: how often the tests of a set accept wrong programs and reject correct ones."""

from __future__ import annotations

from typing import Annotated, Any

from rich.console import Console
from rich.table import Table

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.flags import add_command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs, write_file
from whetstone.core.problem import Problem
from whetstone.core.progress import Progress
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.dataset import place_of
from whetstone_curation.audit.problem_audit import ProblemAudit
from whetstone_curation.audit.whole_set import AuditPlan, SetAudit, audit_set, encoded, journal_path
from whetstone_curation.strengthen.whole_set import count_problems

_EXAMPLES = """\
examples:
  whetstone data audit builtin:heldout
  whetstone data audit sets/valid --report audit.json --mutants 40
  whetstone data audit sets/valid --programs labelled.jsonl --mutants 0

Rates are means over problems with 95% intervals. Known wrong programs are those of the set and those of
--programs. Some mutants are equivalent to the reference, so their rate is an upper bound. With --report, the
same command resumes an interrupted audit.
"""


class AuditFiles(Section):
    """The set to audit, and the report."""

    set: Annotated[NonEmpty, Flag(SET_HELP, "SET", positional=True)]
    report: Annotated[NonEmpty | None, Flag("also write the audit to this file, as JSON", "FILE")] = None
    replace: Annotated[bool, Flag("replace an existing report")] = False


def add_action(actions: Any) -> None:
    """Declare the action."""
    add_command(
        actions,
        "audit",
        audit,
        help="measure how often tests accept wrong programs and reject correct ones",
        description="Judge programs whose correctness is known: references, known wrong programs, mutants "
        "and labelled programs of a file. Report the rates of false accepts and false rejects, "
        "and the ten weakest problems with a wrong program that each accepts.",
        epilog=_EXAMPLES,
    )


def audit(files: AuditFiles, plan: AuditPlan, machine: JudgeMachine) -> int:
    """Audit a set. Raises UserError for unreadable input and an unwritable report."""
    inputs = [place_of(files.set), *([plan.programs] if plan.programs else [])]
    check_outputs(files.report, inputs=inputs, replace=files.replace)
    with Progress() as progress:
        work = progress.begin("auditing", count_problems(files.set))

        def watch(problem: Problem, found: ProblemAudit) -> None:
            work.advance()

        with machine.judge() as judge:
            found = audit_set(
                files.set,
                judge,
                plan,
                report=files.report,
                workers=machine.workers,
                environment=machine.environment,
                watch=watch,
            )
    if files.report:
        write_file(files.report, [encoded(found)])
        journal_path(files.report).unlink(missing_ok=True)
    _print_audit(found, Console())
    return 0


def _print_audit(found: SetAudit, console: Console) -> None:
    table = Table("rate", "mean", "95% interval", "misjudged", "problems", box=None, pad_edge=False)
    for rate in found.rates:
        if rate.rate is None or rate.low is None or rate.high is None:
            table.add_row(rate.name, "-", "-", "no programs", "0")
            continue
        interval = f"{rate.low:.1%} to {rate.high:.1%}"
        count = f"{rate.misjudged} of {rate.programs}"
        table.add_row(rate.name, f"{rate.rate:.1%}", interval, count, str(rate.problems))
    console.print(table)
    if found.unjudged:
        console.print(f"{found.unjudged} programs got no verdict and are not counted", soft_wrap=True)
    for problem_id, programs in found.rejected.items():
        for program in programs:
            line = f"{problem_id}: correct program {program.name} rejected: {program.verdict}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for number, weak in enumerate(found.weakest, 1):
        shares = [
            f"{share:.0%} of {what} accepted"
            for share, what in (
                (weak.known_wrong_accepted, "known wrong programs"),
                (weak.mutants_accepted, "mutants"),
            )
            if share is not None
        ]
        line = f"\n{number}. {weak.problem_id}: {', '.join(shares)}; accepted: {weak.program.name}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print(weak.program.source.rstrip(), markup=False, highlight=False, soft_wrap=True)
