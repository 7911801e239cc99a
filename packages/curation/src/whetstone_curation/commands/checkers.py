"""``whetstone data checkers``: have a model write checkers for problems with several correct answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

from rich.console import Console

from whetstone.cli.data_steps import StepFiles
from whetstone.cli.flags import add_command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.progress import Progress, Work
from whetstone.core.settings import Count, MaxTokens, NonEmpty, Temperature, TopP
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.settings import EndpointSettings

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


class CheckerReplies(SamplingPlan):
    """The model that writes checkers, and the sampling of its replies."""

    TITLE: ClassVar[str] = "model"

    model: Annotated[
        NonEmpty | None, Flag("the name that the endpoint serves, if it serves several", "NAME")
    ] = None
    n: Annotated[Count, Flag("replies per problem, at most", "N", name="attempts")] = 2
    temperature: Temperature = 0.6
    top_p: TopP = 0.95
    max_tokens: MaxTokens = 8192


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
    from whetstone_curation.checkers.journal import CheckerJournal
    from whetstone_curation.checkers.writing import CheckerWriting, CheckerWritingSummary, journal_path

    files.check()
    model = _model_of(plan, endpoint)
    console, threads = Console(), 2 * (machine.workers or len(os.sched_getaffinity(0)))
    with CheckerJournal(journal_path(files.out), model.how) as journal, Progress() as progress:
        if journal.replies:
            progress.say(f"resuming with {len(journal.replies)} replies")
        watch, log = _progress_callbacks(progress)
        with machine.judge() as judge:
            writing = CheckerWriting(files.set, judge, model.writer, plan, model.label, journal, say=log)
            written: CheckerWritingSummary = writing.run(files.out, threads, watch)
        journal.remove()
    line = f"{files.out}: {written.problems} problems; {written.kept} of {written.needed} got a checker"
    console.print(line, highlight=False, soft_wrap=True)
    for reason, number in sorted(written.why.items()):
        console.print(f"  {reason}: {number}", highlight=False, soft_wrap=True)
    return 0


class _WriterModel(NamedTuple):
    """A model that writes. ``how`` has everything that the replies depend on, for a journal of replies."""

    label: str
    writer: Any
    how: dict[str, Any]


def _model_of(plan: CheckerReplies, endpoint: EndpointSettings) -> _WriterModel:
    """Return the model at an endpoint. Raises UserError for a missing endpoint and for one that does not
    answer."""
    from whetstone.environments.settings import EnvironmentSection
    from whetstone.evaluate.replies.endpoint import EndpointModel

    if not endpoint.endpoint:
        raise UserError("--endpoint is missing: the address of a server, such as http://127.0.0.1:8000/v1")
    model = EndpointModel(endpoint.endpoint, plan.model, endpoint)
    label = str(model.manifest["source"])
    how = {"model": label, "plan": plan.model_dump(mode="json", exclude={"k", "model"})}
    return _WriterModel(label, model.writer(plan, EnvironmentSection(prompt="{statement}")), how)


def _progress_callbacks(progress: Progress) -> tuple[Callable[[str, int, int], None], Callable[[str], None]]:
    """Return a function that shows the progress of a named work, and one that prints a line."""
    works: dict[str, Work] = {}

    def watch(name: str, done: int, total: int) -> None:
        if name not in works:
            works[name] = progress.begin(name, total)
        works[name].update(done)
        if done >= total:
            progress.end(works[name])

    return watch, progress.say
