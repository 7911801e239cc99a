"""Write a set of repository tasks with its data card, and check one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import LockedLog, check_outputs, write_file
from whetstone.judge.environments.environment import environment_named
from whetstone.judge.repository.base import pack_base, read_base
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import TASKS_FILE, RepositoryTask, base_archive, read_tasks
from whetstone.sandbox import Tier
from whetstone_curation.repositories.making import (
    TRIVIAL,
    MadeTask,
    PackageRecord,
    SetCard,
    TaskMaker,
    grading_failure,
)
from whetstone_curation.repositories.package_index import Unsuitable, fetch_source
from whetstone_curation.repositories.source_tree import read_distribution, read_local
from whetstone_curation.repositories.trivial_code import sealed_tests

CARD_FILE, CARD_PAGE = "card.json", "card.md"


class Graders(Struct, frozen=True, kw_only=True):
    """The sandboxes that run tests, and how often they must agree."""

    environment: Annotated[
        str,
        Flag(
            "the environment of packages, which has pytest and not the packages under test (see: whetstone "
            "judge environment --help)",
            "NAME",
        ),
    ] = "repository"
    minimum_tier: Annotated[
        Literal["restricted", "userns", "root"],
        Flag("refuse to run with weaker isolation than this (see: whetstone doctor)"),
    ] = "restricted"
    workers: Annotated[int, Meta(ge=1), Flag("runs of tests at the same time", "N")] = 1
    repeats: Annotated[int, Meta(ge=1), Flag("how often base and reference are graded", "N")] = 10

    def grader(self, environment: str = "") -> RepositoryGrader:
        """Return the grader of an environment. Raises UserError for one without pytest."""
        return RepositoryGrader(
            environment or self.environment,
            workers=self.workers,
            minimum_tier=Tier[self.minimum_tier.upper()],
        )


class SetPlan(Struct, frozen=True, kw_only=True):
    """The output, and the limits of its tasks."""

    out: Annotated[str, Flag("the folder for the set", "FOLDER")]
    cpu_s: Annotated[
        float, Meta(gt=0), Flag("CPU seconds of one run of a task's tests; a third for the reference", "S")
    ] = 15.0
    memory_mb: Annotated[float, Meta(gt=0), Flag("memory of one run of a task's tests", "MB")] = 1024.0
    replace: Annotated[bool, Flag("replace an existing set")] = False


class MakePlan(SetPlan, frozen=True, kw_only=True):
    """The packages and the choice of functions."""

    packages: Annotated[
        tuple[str, ...],
        Flag("a package as for pip, or a path with a / of a folder or archive", "PACKAGE", positional=True),
    ]
    tasks_per_package: Annotated[int, Meta(ge=1), Flag("at most this number of tasks for a package", "N")] = (
        12
    )
    seed: Annotated[int, Flag("draws the functions and their changes", "SEED")] = 0


MakeTasks = Callable[[TaskMaker, PackageRecord], list[MadeTask]]
"""Makes the tasks of the package or row that a record names, and completes the record. Raises Unsuitable."""


class _Package(Struct):
    """A line of the journal: a package that is done, and its tasks. Their bases are already written."""

    record: PackageRecord
    tasks: list[RepositoryTask]


def make_set(plan: MakePlan, graders: Graders, watch: Callable[[PackageRecord], None]) -> SetCard:
    """Make the tasks of all packages. ``watch`` is told of each package that is done.

    The tasks and bases of one seed are the same bytes each time. Raises UserError if no package gives a task.
    """

    def make(maker: TaskMaker, record: PackageRecord) -> list[MadeTask]:
        name = record.package
        if "/" in name:
            return maker.make(read_local(Path(name)), record)
        project, version, data = fetch_source(name)
        return maker.make(read_distribution(data, project, str(version)), record)

    inputs = [name for name in plan.packages if "/" in name]
    most = plan.tasks_per_package
    return write_set(plan, graders, plan.packages, make, watch, inputs=inputs, seed=plan.seed, most=most)


def write_set(
    plan: SetPlan,
    graders: Graders,
    names: Iterable[str],
    make: MakeTasks,
    watch: Callable[[PackageRecord], None],
    *,
    inputs: Iterable[str],
    seed: int = 0,
    most: int = 1,
) -> SetCard:
    """Write a set with the tasks of packages or rows. ``watch`` is told of each that is done. The set
    replaces none of the ``inputs``.

    Those that are done are in a journal beside the set, so that the same call resumes. Raises UserError if
    none gives a task.
    """
    out, names = Path(plan.out), list(dict.fromkeys(names))
    journal = out.with_name(f"{out.name}.journal.jsonl")
    if not journal.exists():
        check_outputs(out, inputs=inputs, replace=plan.replace)
        shutil.rmtree(out, ignore_errors=True)
    environment = environment_named(graders.environment)
    with graders.grader() as grader:
        card = SetCard(
            whetstone=__version__,
            environment=environment.label,
            tier=grader.tier.label,
            seed=seed,
            repeats=graders.repeats,
            cpu_s=plan.cpu_s,
            memory_mb=plan.memory_mb,
            tasks_per_package=most,
        )
        maker = TaskMaker(grader, environment, card)
        first = msgspec.json.encode(card) + b"\n"
        with (
            LockedLog(journal, first, work="`make`", differs="choice") as log,
            ThreadPoolExecutor(graders.workers) as pool,
        ):
            done = {each.record.package: each for each in map(_line_decoder.decode, log.lines)}
            try:
                # In the order of their ends: a slow package must not keep others from the journal.
                for end in as_completed(
                    [pool.submit(_timed, make, maker, name) for name in names if name not in done]
                ):
                    record, made = end.result()
                    for task, base in made:
                        write_file(base_archive(out, task), [pack_base(base)])
                    done[record.package] = _Package(record, [task for task, _ in made])
                    log.append(msgspec.json.encode(done[record.package]) + b"\n")
                    watch(record)
            except BaseException:
                maker.stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
            _complete(out, card, [done[name] for name in names])
            log.remove()
    if not card.tasks:
        reasons = "\n".join(f"  {each.package}: {why_fewer(each)}" for each in card.packages)
        raise UserError(f"nothing gives a task:\n{reasons}")
    return card


def _timed(make: MakeTasks, maker: TaskMaker, name: str) -> tuple[PackageRecord, list[MadeTask]]:
    start = time.monotonic()
    record, made = PackageRecord(package=name), list[MadeTask]()
    try:
        made = make(maker, record)
    except Unsuitable as error:
        record.dropped = str(error)
    record.tasks, record.seconds = len(made), round(time.monotonic() - start, 1)
    return record, made


def _complete(out: Path, card: SetCard, packages: list[_Package]) -> None:
    """Write the tasks and the card of a set that has a task."""
    card.packages = [package.record for package in packages]
    card.tasks = sum(record.tasks for record in card.packages)
    if card.tasks:
        tasks = (msgspec.json.encode(task) + b"\n" for package in packages for task in package.tasks)
        write_file(out / TASKS_FILE, tasks)
        write_file(out / CARD_FILE, [msgspec.json.format(msgspec.json.encode(card), indent=2), b"\n"])
        write_file(out / CARD_PAGE, [_card_page(card).encode()])


_line_decoder = msgspec.json.Decoder(_Package)


def why_fewer(record: PackageRecord) -> str:
    """Return why a package gave no tasks, or not one for each function."""
    if record.dropped:
        return record.dropped
    reasons = sorted(record.dropped_functions.items(), key=lambda item: -item[1])
    return "; ".join(f"{reason} ({count})" for reason, count in reasons)


def _card_page(card: SetCard) -> str:
    """Return the card as Markdown."""
    used = sum(each.tasks > 0 for each in card.packages)
    rows = [
        (each.package, each.version, each.licence, each.tests, each.tasks, why_fewer(each))
        for each in card.packages
    ]
    lines = ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows]
    return (
        f"# Repository tasks\n\n{card.tasks} tasks from {used} of {len(rows)} packages or rows. With the "
        f"reference, the tests of each passed {card.repeats} of {card.repeats} times, and without it they "
        f"failed as often. Environment `{card.environment}`, isolation {card.tier}, seed {card.seed}, "
        f"Whetstone {card.whetstone}, {sum(each.seconds for each in card.packages):.0f} s of one worker.\n\n"
        "| package | version | licence | tests | tasks | dropped |\n| --- | --- | --- | --- | --- | --- |\n"
        + "\n".join([*lines, ""])
    )


def check_set(
    folder: Path, graders: Graders, watch: Callable[[], None]
) -> tuple[int, list[tuple[RepositoryTask, str]]]:
    """Grade the base and the reference of every task again. Return the number of tasks, and what failed.

    Each environment that the tasks name is used. Raises UserError for an unreadable set.
    """
    tasks: dict[str, list[RepositoryTask]] = {}
    for task in read_tasks(folder):
        tasks.setdefault(task.environment, []).append(task)
    failed: list[tuple[RepositoryTask, str]] = []
    for environment, several in tasks.items():
        # A folder that is given stands for the environment with its name.
        given = graders.environment if Path(graders.environment).name == environment else environment
        with graders.grader(given) as grader, ThreadPoolExecutor(graders.workers) as pool:

            def check(task: RepositoryTask, grader: RepositoryGrader = grader) -> str:
                base = read_base(base_archive(folder, task))
                if task.sealed and not sealed_tests(grader, task, base):
                    return TRIVIAL
                return grading_failure(grader, task, base, graders.repeats)

            for task, problem in zip(several, pool.map(check, several), strict=True):
                if problem:
                    failed.append((task, problem))
                watch()
    return sum(map(len, tasks.values())), failed
