"""``whetstone data repositories``: make tasks of packages with their own tests, and check a set of tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from rich.console import Console

from whetstone.cli.flags import add_command
from whetstone.core.flag import Flag
from whetstone.core.progress import Progress
from whetstone_curation.repositories.imported_rows import ImportPlan, make_imported, read_imported
from whetstone_curation.repositories.making import MadeTask, PackageRecord, SetCard, TaskMaker
from whetstone_curation.repositories.task_set import (
    CARD_PAGE,
    Graders,
    MakePlan,
    SetPlan,
    check_set,
    make_set,
    why_fewer,
    write_set,
)

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
_IMPORT = """\
example: whetstone data repositories import swe_rebench.parquet --repositories clones --out sets/rebench

Reads rows of SWE-bench, SWE-rebench, SWE-smith and Nemotron. The clone of a row's repository is OWNER/NAME,
OWNER__NAME or NAME in the folder. No image is read. Base and reference are run, and what the tests observe is
recorded. Rows that give no task are listed with the reason, here and in the card of the set.
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
    add_command(own, "import", import_rows, help="make tasks of the rows of public sets", epilog=_IMPORT)
    add_command(own, "check", check, help="grade the base and the reference of each task", epilog=_CHECK)


def make(plan: MakePlan, graders: Graders) -> int:
    """Make a set of tasks. Raises UserError if no package gives one."""
    return _made(plan, len(plan.packages), lambda watch: make_set(plan, graders, watch))


def import_rows(plan: ImportPlan, graders: Graders) -> int:
    """Make a set of the rows of a public one. Raises UserError if no row gives a task."""
    rows = read_imported(Path(plan.rows))

    def make(maker: TaskMaker, record: PackageRecord) -> list[MadeTask]:
        return make_imported(maker, rows[record.package], Path(plan.repositories), record)

    inputs = [plan.rows, plan.repositories]
    return _made(plan, len(rows), lambda watch: write_set(plan, graders, rows, make, watch, inputs=inputs))


def _made(plan: SetPlan, number: int, run: Callable[[Callable[[PackageRecord], None]], SetCard]) -> int:
    """Make a set, and tell what each of the packages or rows gave."""
    with Progress() as progress:
        work = progress.begin("making tasks", number)

        def watch(record: PackageRecord) -> None:
            why = f": {why_fewer(record)}" if not record.tasks else ""
            progress.say(f"{record.package}: {record.tasks} tasks with {record.tests} tests{why}")
            work.advance()

        card = run(watch)
    refused = sum(not record.tasks for record in card.packages)
    line = f"{plan.out}: {card.tasks} tasks; {refused} of {number} gave none (see {CARD_PAGE} there)"
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
