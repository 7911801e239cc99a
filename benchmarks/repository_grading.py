"""What grading a change costs beside the tests themselves, for each tier.

    python benchmarks/repository_grading.py [--environment NAME] [--set FOLDER] [--tasks 20] [--rounds 5]

Each task's reference is graded. For comparison, `python3 -S -m pytest` runs the same test modules in a
workspace with the same files, at the same tier. Without a set, there is one task: 300 files of 5 KB, and 100
tests in five modules. With a set, the tasks are the first ones of different packages. A task that a tier
cannot run, because its tests start processes, is left out there.

Prints medians in milliseconds. A task counts with the median of its rounds. By the clock, the machine must
be idle. CPU time of grading is that of the sandbox and of this process. The tests' own time is what pytest
states for all of them together, without its start and without finding them. The last rows are over all
tasks: grading without the tests' own time, and without the time of the whole pytest process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.problem import Limits
from whetstone.core.verdict import Verdict
from whetstone.judge.environments.environment import PackageEnvironment, environment_named
from whetstone.judge.repository.base import base_name, pack_base, read_base
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand, changed_files
from whetstone.judge.repository.recording import record_tests
from whetstone.judge.repository.task import RepositoryTask, base_archive, read_tasks
from whetstone.sandbox import (
    WORKSPACE_PROFILE,
    RunLimits,
    Tier,
    Workspace,
    WorkspaceBase,
    Workspaces,
)

Files = dict[str, bytes]
FILES, MODULES, TESTS = 300, 5, 20
FILLER = b"".join(b"value_%d = %d\n" % (number, number) for number in range(250))
# In place of the module that the grader provides.
OBSERVER = b"def value(hole, seen):\n    return seen\n\n\ntruth = value\n"
REPORT = "report.xml"
ROWS = ("tests alone", "pytest", "pytest, CPU", "grading", "grading, CPU")


def generated_task(grader: RepositoryGrader, environment: str) -> tuple[RepositoryTask, Files]:
    """Return a task with small tests, and its base."""
    right = {"numbered/__init__.py": b"def power(number):\n    return number**3 + 7\n"}
    base = {f"numbered/part{number}.py": FILLER for number in range(FILES)}
    base["numbered/__init__.py"] = b"def power(number):\n    return number**2 + 7\n"
    sources = {
        f"tests/test_{module}.py": "from numbered import power\n"
        + "".join(
            f"\n\ndef test_{number}():\n    assert power({number}) == {number**3 + 7}\n"
            for number in range(10 + module * TESTS, 10 + (module + 1) * TESTS)
        )
        for module in range(MODULES)
    }
    limits = Limits(cpu_s=20.0)
    solved = {**base, **right}
    recorded = record_tests(
        sources, lambda modules: grader.run_tests(solved, modules, TestCommand([*modules]), limits)[1]
    )
    assert len(recorded.tests) == MODULES * TESTS, recorded.dropped
    task = RepositoryTask(
        id="generated",
        statement="",
        base=base_name(base),
        may_change=["numbered"],
        tests=recorded.modules,
        fail_to_pass=recorded.tests,
        sealed=True,
        environment=environment,
        limits=limits,
        reference={path: data.decode() for path, data in right.items()},
    )
    return task, base


def tasks_of(folder: Path, most: int) -> Iterator[tuple[RepositoryTask, Files]]:
    """Yield the first tasks of different packages, with their bases."""
    first: dict[str, RepositoryTask] = {}
    for task in read_tasks(folder):
        first.setdefault(task.source, task)
    for task in list(first.values())[:most]:
        yield task, read_base(base_archive(folder, task))


def graded(grader: RepositoryGrader, task: RepositoryTask, base: Files) -> dict[str, float]:
    """Grade the reference; return the seconds, or nothing if it fails."""
    change = task.reference_change()
    cpu, wall = time.process_time(), time.perf_counter()
    judgement = grader.grade(task, base, change)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if judgement.verdict is not Verdict.ACCEPTED:
        print(f"{grader.tier.label}: {task.id} is left out: {judgement.reason}")
        return {}
    return {"grading": wall, "grading, CPU": cpu + sum(case.cpu_s for case in judgement.cases)}


def tested(workspace: Workspace, task: RepositoryTask, packages: list[str]) -> dict[str, float]:
    """Run pytest as a command; return the seconds."""
    search = ":".join([*(f'"$PWD"/{shlex.quote(path)}' for path in task.python_path), *packages])
    options = "-q --tb=no -p no:cacheprovider -o addopts= --rootdir ."
    files = " ".join(map(shlex.quote, task.tests))
    script = (
        f"export PYTHONPATH={search} PYTEST_DISABLE_PLUGIN_AUTOLOAD=1; "
        f"exec python3 -S -m pytest {options} --junitxml={REPORT} {files}"
    )
    limits = RunLimits(task.limits.cpu_s, 2 << 30, 16 << 20)
    result = workspace.run(["sh", "-c", script], limits=limits)
    # Tests that a task leaves out may fail.
    assert result.exit_code in (0, 1), f"{task.id}: {result.stdout.decode()} {result.stderr.decode()}"
    report = ElementTree.fromstring(workspace.read(REPORT, 16 << 20))
    own = sum(float(case.get("time", "0")) for case in report.iter("testcase"))
    return {"tests alone": own, "pytest": result.wall_s, "pytest, CPU": result.cpu_s}


def opened(root: Path, environment: PackageEnvironment, tier: Tier) -> Workspaces:
    """Return workspaces whose commands find the packages."""
    python = Path(environment.interpreter or os.path.realpath(sys.executable))
    names = [python.parent / name for name in ("python3", python.name)]
    profile = replace(
        WORKSPACE_PROFILE,
        reads=[*environment.reads, *(str(path) for path in names if path.exists())],
        environment={"PATH": f"{python.parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return Workspaces(root, tier=tier, profile=profile)


def measure(
    tier: Tier, environment: PackageEnvironment, options: argparse.Namespace, root: Path
) -> list[dict[str, float]]:
    """Return the median seconds of each task."""
    found: list[dict[str, float]] = []
    with (
        RepositoryGrader(options.environment, tier=tier) as grader,
        opened(root, environment, tier) as workspaces,
    ):
        tasks = [generated_task(grader, environment.name)]
        if options.set is not None:
            tasks = list(tasks_of(options.set, options.tasks))
        for task, base in tasks:
            if not graded(grader, task, base):
                continue
            files = changed_files(base, task.reference_change()) | {
                path: text.encode() for path, text in task.tests.items()
            }
            files[f"{task.python_path[0]}/whetstone_observer.py".removeprefix("./")] = OBSERVER
            stored = WorkspaceBase.from_archive(root, pack_base(files))
            rounds: list[dict[str, float]] = []
            with workspaces.open(stored) as workspace:
                for _ in range(options.rounds):
                    times = graded(grader, task, base)
                    rounds.append(times | tested(workspace, task, environment.folders))
            found.append({row: statistics.median(each[row] for each in rounds) for row in ROWS})
    return found


def overheads(tasks: list[dict[str, float]]) -> dict[str, float]:
    """Return the rows of a tier, in milliseconds."""
    rows = {row: [task[row] for task in tasks] for row in ROWS}
    for name, grading, other in (
        ("grading without the tests", "grading", "tests alone"),
        ("grading without pytest", "grading", "pytest"),
        ("grading without pytest, CPU", "grading, CPU", "pytest, CPU"),
    ):
        rows[name] = [task[grading] - task[other] for task in tasks]
    medians = {row: 1000.0 * statistics.median(values) for row, values in rows.items()}
    medians["the most without the tests"] = 1000.0 * max(rows["grading without the tests"])
    return medians


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--set", type=Path)
    parser.add_argument("--environment", default="repository")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    environment = environment_named(options.environment)
    columns: dict[str, dict[str, float]] = {}
    for tier in sorted(Tier, reverse=True):
        root = Path(tempfile.mkdtemp(prefix="whetstone-grading-", dir="/var/tmp"))
        root.chmod(0o711)
        try:
            columns[tier.label] = overheads(measure(tier, environment, options, root))
        except (SandboxUnavailable, UserError) as refused:
            print(f"{tier.label}: {refused}")
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"\n| ms, medians | {' | '.join(columns)} |")
    print("| --- |" + " ---: |" * len(columns))
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(f"{column[row]:.0f}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
