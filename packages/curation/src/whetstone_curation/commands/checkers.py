"""``whetstone data checkers``: have a model write checkers for problems with several correct answers."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

from whetstone.cli.data_steps import StepFiles
from whetstone.cli.flags import add_command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.progress import Progress
from whetstone.evaluate.replies.settings import EndpointSettings
from whetstone_curation.model_writing import CheckerReplies, model_of, progress_callbacks

_EXAMPLES = """\
examples:
  whetstone data checkers sets/raw --out sets/checked --endpoint http://127.0.0.1:8000/v1
  whetstone data checkers sets/raw --out sets/checked --endpoint http://127.0.0.1:8000/v1 --attempts 4 \\
      --max-tokens 16384 --body '{"chat_template_kwargs": {"enable_thinking": true}}'

A checker is kept under three conditions. It accepts every reference that runs, and the expected outputs in
any layout. It rejects programs that solve nothing, known wrong programs, garbage, and most mutants and
damaged answers. It accepts more than the comparison. It runs in the sandbox only. Pass OUT to `whetstone data
validate` next, which drops the problems without a checker. The same command resumes and repeats no request.
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    add_command(
        actions,
        "checkers",
        write_checkers,
        help="have a model write checkers for problems with several correct answers; keep valid ones",
        description="Request a checker from a model for every problem that allows several answers and has "
        "none. Test it on references, wrong programs, mutants and damaged answers, and keep it "
        "if it is valid.",
        epilog=_EXAMPLES,
    )


def write_checkers(
    files: StepFiles, plan: CheckerReplies, endpoint: EndpointSettings, machine: JudgeMachine
) -> int:
    """Write checkers. Raises UserError for unreadable input, failed requests and unwritable output."""
    from whetstone_curation.checkers.writing import CheckerWriting, CheckerWritingSummary, journal_path
    from whetstone_curation.journal import CheckerJournal

    files.check()
    model = model_of(plan, endpoint)
    console, threads = Console(), 2 * (machine.workers or len(os.sched_getaffinity(0)))
    with CheckerJournal(journal_path(files.out), model.how) as journal, Progress() as progress:
        if journal.replies:
            progress.say(f"resuming with {len(journal.replies)} replies")
        watch, log = progress_callbacks(progress)
        with machine.judge() as judge:
            writing = CheckerWriting(files.set, judge, model.writer, plan, model.label, journal, say=log)
            written: CheckerWritingSummary = writing.run(files.out, threads, watch)
        journal.remove()
    line = f"{files.out}: {written.problems} problems; {written.kept} of {written.needed} got a checker"
    console.print(line, highlight=False, soft_wrap=True)
    for reason, number in sorted(written.why.items()):
        console.print(f"  {reason}: {number}", highlight=False, soft_wrap=True)
    return 0
