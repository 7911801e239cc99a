"""``whetstone data repositories``: make tasks of packages with their own tests, and check a set of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from rich.console import Console

from whetstone.cli.flags import add_command
from whetstone.core.flag import Flag
from whetstone.core.progress import Progress
from whetstone_curation.repositories.making import PackageRecord
from whetstone_curation.repositories.task_set import Graders, MakePlan, check_set, make_set, why_fewer

_MAKE = """\
examples:
  whetstone judge environment create repository pytest freezegun
  whetstone data repositories make inflection humanize==4.* --out sets/repositories
  whetstone data repositories make ./my_package --out sets/mine --tasks-per-package 30

The source distribution comes from the indexes of pip's configuration. Nothing of it runs outside of the
sandbox. Its own tests are run; those count that pass every time. A function then loses its body, or gets a
mistake, so that some tests fail. Their modules are the hidden tests. The same seed gives the same set, and
the same command resumes an interrupted one.
"""
_CHECK = """\
example: whetstone data repositories check sets/repositories --repeats 3

The exit status is 1 if a base passes or a reference fails.
"""


class CheckedSet(Struct, frozen=True):
    """The set to check."""

    folder: Annotated[str, Flag("a folder of tasks", "FOLDER", positional=True)]


def add_action(actions: Any) -> None:
    """Declare the action with its own actions."""
    parser = actions.add_parser(
        "repositories",
        help="make tasks whose answer is a change of a code base, with hidden tests",
        description="Make tasks of packages with their own tests, and check a set of such tasks.",
    )
    own = parser.add_subparsers(dest="repositories_action", metavar="ACTION", required=True)
    add_command(own, "make", make, help="make tasks of packages with their own tests", epilog=_MAKE)
    add_command(own, "check", check, help="grade the base and the reference of each task", epilog=_CHECK)


def make(plan: MakePlan, graders: Graders) -> int:
    """Make a set of tasks. Raises UserError if no package gives one."""
    with Progress() as progress:
        work = progress.begin("making tasks", len(plan.packages))

        def watch(record: PackageRecord) -> None:
            found = f"{record.tasks} tasks from {record.functions} functions and {record.tests} tests"
            why = f": {why_fewer(record)}" if not record.tasks else ""
            progress.say(f"{record.package} {record.version}: {found}{why}")
            work.advance()

        card = make_set(plan, graders, watch)
    used = sum(record.tasks > 0 for record in card.packages)
    line = f"{plan.out}: {card.tasks} tasks from {used} packages"
    Console().print(line, highlight=False, soft_wrap=True)
    return 0


def check(checked: CheckedSet, graders: Graders) -> int:
    """Check a set. Returns 1 if a task cannot be used. Raises UserError for an unreadable set."""
    console = Console()
    with Progress() as progress:
        work = progress.begin("checking tasks")
        tasks, failed = check_set(Path(checked.folder), graders, work.advance)
    for task, problem in failed:
        console.print(f"{task.id}: {problem}", markup=False, highlight=False, soft_wrap=True)
    line = (
        f"{checked.folder}: {tasks - len(failed)} of {tasks} tasks: the base fails and the reference passes"
    )
    console.print(f"{line}, {graders.repeats} times each", highlight=False, soft_wrap=True)
    return 1 if failed or not tasks else 0
