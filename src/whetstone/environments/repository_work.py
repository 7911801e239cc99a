"""The work on a repository task in an episode: a workspace, its commands, and the verdict on its changes."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeVar

from pydantic import Field

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.settings import Count, Natural
from whetstone.core.verdict import Judgement, Verdict, storable
from whetstone.data.repository_problems import FOLDER
from whetstone.environments.episode import ProgramJudge
from whetstone.environments.tool import ToolError, ToolFault, ToolLimits
from whetstone.environments.tools import clipped
from whetstone.judge.environments.environment import environment_named
from whetstone.judge.repository.base import read_base
from whetstone.judge.repository.grader import Change, RepositoryGrader, allowed_change
from whetstone.judge.repository.task import RepositoryTask, base_archive, read_tasks
from whetstone.sandbox import (
    WORKSPACE_PROFILE,
    EndReason,
    RunLimits,
    RunResult,
    SandboxFault,
    Tier,
    TreeEntry,
    Workspace,
    WorkspaceBase,
    WorkspaceDiff,
    WorkspaceError,
    WorkspaceLimits,
    Workspaces,
)
from whetstone.sandbox import Change as Happened

_T = TypeVar("_T")
_OUTPUT_BYTES = 1 << 20
# Linux takes arguments of up to 128 KiB.
_LONGEST_COMMAND = 100_000
_LEAST_S = 0.1
_TEST_RUNNERS = ("pytest", "unittest", "tox", "nox")
_ENDS = {
    EndReason.CPU_LIMIT: "it used all of its CPU seconds",
    EndReason.MEMORY_LIMIT: "it used too much memory",
    EndReason.OUTPUT_LIMIT: "it printed or wrote too much",
    EndReason.PROCESS_LIMIT: "it started too many processes",
}
cached_base = lru_cache(maxsize=32)(read_base)


class RepositoryLimits(ToolLimits):
    """What an episode may use in its workspace, and how its changes are judged.

    cpu_s: CPU seconds of a command.
    episode_cpu_s: CPU seconds of all commands of an episode. The last one may exceed it by little.
    episode_wall_s: the same in seconds by the clock.
    memory_mb: resident memory of a command, in MiB.
    disk_mb: MiB that a workspace may take in addition to its code base.
    output_chars: the most characters of a result. Of a longer one the model reads the beginning and the end.
    packages: the environment of packages, as in ``judge.environment``. Empty for the one that a task names.
    workers: the most commands and gradings at a time; 0 is one for each core.
    """

    cpu_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    episode_cpu_s: Annotated[float, Field(gt=0, le=36_000)] = 300.0
    episode_wall_s: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    memory_mb: Annotated[int, Field(ge=64, le=65536)] = 1024
    disk_mb: Count = 256
    output_chars: Annotated[int, Field(ge=500, le=100_000)] = 10_000
    workers: Natural = 0


@dataclass(frozen=True)
class _Place:
    """Where tasks with one environment of packages are worked on and graded."""

    workspaces: Workspaces
    grader: RepositoryGrader
    packages: list[str]


class Repositories:
    """Tasks, and what all episodes share. It is opened at first use and usable from several threads."""

    def __init__(self, limits: RepositoryLimits) -> None:
        self.limits = limits
        self._workers = limits.workers or len(os.sched_getaffinity(0))
        self._lock = threading.RLock()
        self._sets: dict[str, dict[str, RepositoryTask]] = {}
        self._places: dict[tuple[str, Tier], _Place] = {}
        self._bases: dict[str, WorkspaceBase] = {}
        self._opened = ExitStack()
        self._threads = ThreadPoolExecutor(self._workers, "repositories")

    def task(self, problem: Problem) -> RepositoryTask:
        """Return the task of a problem. Raises UserError if there is none."""
        folder = str(problem.meta.get(FOLDER, ""))
        with self._lock:
            if folder and folder not in self._sets:
                self._sets[folder] = {task.id: task for task in read_tasks(Path(folder))}
            task = self._sets.get(folder, {}).get(problem.id)
        if task is None:
            raise UserError(
                f"problem {problem.id!r} is no repository task; give a folder of such tasks as `data.train` "
                "(whetstone data repositories make), or another `environment.kind`"
            )
        return task

    def archive(self, problem: Problem) -> Path:
        """Return the archive of a problem's code base."""
        return base_archive(Path(str(problem.meta[FOLDER])), self.task(problem))

    async def in_thread(self, function: Callable[..., _T], *given: object) -> _T:
        """Call a function in one of the threads, of which there are as many as workers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *given)

    def place(self, task: RepositoryTask, tier: Tier) -> _Place:
        """Return where a task is worked on. Raises UserError and SandboxUnavailable."""
        with self._lock:
            if (task.environment, tier) not in self._places:
                self._places[task.environment, tier] = self._open(task, tier)
            return self._places[task.environment, tier]

    def _open(self, task: RepositoryTask, tier: Tier) -> _Place:
        limits = self.limits
        packages = environment_named(limits.packages or task.environment)
        if task.environment != packages.name:
            raise UserError(
                f"task {task.id!r} needs the environment `{task.environment}`, not `{packages.name}`: set "
                "`environment.options.packages` to it, or leave it out"
            )
        root = Path(
            self._opened.enter_context(TemporaryDirectory("", "whetstone-", ignore_cleanup_errors=True))
        )
        root.chmod(0o711)  # the users of the sandbox must be able to walk through it
        # The interpreter of the packages comes first; the system's may have another version.
        python = Path(packages.interpreter or os.path.realpath(sys.executable))
        names = [python.parent / name for name in ("python", "python3", python.name)]
        profile = replace(
            WORKSPACE_PROFILE,
            reads=[*packages.reads, *(str(path) for path in names if path.exists())],
            environment={"PATH": f"{python.parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        grader = RepositoryGrader(
            limits.packages or task.environment, workers=self._workers, minimum_tier=tier
        )
        self._opened.enter_context(grader)
        disk = WorkspaceLimits(disk_bytes=limits.disk_mb << 20)
        workspaces = Workspaces(root, minimum_tier=tier, profile=profile, limits=disk, workers=self._workers)
        return _Place(self._opened.enter_context(workspaces), grader, packages.folders)

    def open_workspace(self, problem: Problem, place: _Place) -> Workspace:
        """Open a workspace with the code base of a problem."""
        base = self.task(problem).base
        with self._lock:
            if base not in self._bases:
                self._bases[base] = WorkspaceBase.from_archive(place.workspaces.root, self.archive(problem))
        return place.workspaces.open(self._bases[base])

    def close(self) -> None:
        """End all processes and remove the workspaces."""
        self._threads.shutdown()
        self._opened.close()


def change_of(diff: WorkspaceDiff) -> dict[str, bytes | None]:
    """Return the regular files of a diff, as a grader takes them. Other entries do not count."""
    return {
        each.path: None if each.change is Happened.DELETED else each.data
        for each in diff.changes
        if each.entry is TreeEntry.FILE
    }


class RepositoryWork:
    """A task in one episode. Its workspace is opened at the first use; no process lives between two calls.

    ``counts`` says what was done: ``commands``, of these ``test_runs``, ``edits``, and lines of the change.
    ``files`` are the paths that were read.
    """

    def __init__(self, shared: Repositories, problem: Problem, judge: ProgramJudge) -> None:
        self.shared, self.problem = shared, problem
        self.task = shared.task(problem)
        self.files: set[str] = set()
        self.counts = Counter[str](commands=0, test_runs=0, edits=0, patch_lines=0)
        self._tier = Tier[judge.minimum_tier.upper()]
        self._used_cpu_s = self._used_wall_s = 0.0
        self._workspace: Workspace | None = None
        self._lock = asyncio.Lock()

    async def use(self, verb: Callable[[Workspace], _T]) -> _T:
        """Use the workspace, after earlier uses. Raises ToolError for what it refuses, and ToolFault."""
        async with self._lock:
            try:
                return await self.shared.in_thread(lambda: self._use(verb))
            except WorkspaceError as error:
                raise ToolError(str(error)) from None
            except (SandboxFault, OSError) as error:
                raise ToolFault(f"the workspace: {error}") from None

    def _use(self, verb: Callable[[Workspace], _T]) -> _T:
        if self._workspace is None:
            place = self.shared.place(self.task, self._tier)
            self._workspace = self.shared.open_workspace(self.problem, place)
        return verb(self._workspace)

    async def run(self, command: str, *, counted: bool = True) -> tuple[str, int]:
        """Run a shell command. Returns its output with a note about its end, and its exit code.

        ``counted``: as a command of the model. Raises ToolError for one that cannot be run, and ToolFault.
        """
        if "\0" in command or len(command.encode(errors="replace")) > _LONGEST_COMMAND:
            raise ToolError(f"a command has at most {_LONGEST_COMMAND} bytes, and no zero byte")
        self.counts["commands"] += counted
        self.counts["test_runs"] += counted and any(name in command for name in _TEST_RUNNERS)
        result = await self.use(lambda workspace: self._run(workspace, command))
        text = result.stdout.decode(errors="replace")
        if result.ended is EndReason.EXITED:
            note = f"[exit code {result.exit_code}]" if result.exit_code else ""
        elif result.ended is EndReason.SIGNALED:
            note = f"[ended by signal {result.signal}]"
        else:
            note = f"[stopped: {_ENDS.get(result.ended, 'it took too long by the clock')}]"
        code = result.exit_code if result.exit_code is not None else 128 + (result.signal or 0)
        return "\n".join(
            filter(None, (clipped(text.rstrip("\n"), self.shared.limits.output_chars), note))
        ), code

    def _run(self, workspace: Workspace, command: str) -> RunResult:
        limits = self.shared.limits
        cpu_s = min(limits.cpu_s, limits.episode_cpu_s - self._used_cpu_s)
        wall_s = limits.episode_wall_s - self._used_wall_s
        if min(cpu_s, wall_s) <= 0:
            raise ToolError("all commands together have used their seconds; no more are run")
        bound = RunLimits(
            max(cpu_s, _LEAST_S),
            limits.memory_mb << 20,
            _OUTPUT_BYTES,
            max(min(10 * cpu_s + 10, wall_s), _LEAST_S),
        )
        folders = [f'"$PWD"/{shlex.quote(folder)}' for folder in self.task.python_path]
        packages = self.shared.place(self.task, self._tier).packages
        search = ":".join([*folders, *map(shlex.quote, packages)])
        shell = "bash" if shutil.which("bash", path="/usr/bin:/bin") else "sh"
        script = f'exec 2>&1; export PYTHONPATH={search}; exec {shell} -c "$1"'
        result = workspace.run(["sh", "-c", script, shell, command], limits=bound)
        self._used_cpu_s += result.cpu_s
        self._used_wall_s += result.wall_s
        return result

    async def finish(self) -> Judgement:
        """Close the workspace and judge its changes."""
        try:
            change = {} if self._workspace is None else change_of(await self.use(lambda each: each.diff()))
        except (ToolError, ToolFault) as error:
            is_fault = isinstance(error, ToolFault)
            verdict = Verdict.JUDGE_ERROR if is_fault else Verdict.OUTPUT_LIMIT
            score = None if is_fault else 0.0
            return Judgement(verdict, [], score, self._tier.label, storable(str(error)))
        finally:
            await self.close()
        return await self.shared.in_thread(self._judge, change)

    def _judge(self, change: Change) -> Judgement:
        base = cached_base(self.shared.archive(self.problem))
        change = allowed_change(self.task, change)
        for path, data in change.items():
            before, after = (Counter(text.splitlines()) for text in (base.get(path, b""), data or b""))
            self.counts["patch_lines"] += (before - after).total() + (after - before).total()
        grader = self.shared.place(self.task, self._tier).grader
        if not change:
            reason = "nothing was changed that counts"
            return Judgement(Verdict.NO_CODE, [], 0.0, grader.tier.label, reason)
        return grader.grade(self.task, base, change)

    async def close(self) -> None:
        """Remove the workspace. Idempotent."""
        if self._workspace is not None:
            await self.shared.in_thread(self._workspace.close)

    def metrics(self) -> dict[str, float]:
        """Return what was done, as metrics of a sample."""
        return {"files_read": float(len(self.files)), **{name: float(n) for name, n in self.counts.items()}}


_WORK: ContextVar[RepositoryWork] = ContextVar("the work of the episode that this task plays")


def current_work() -> RepositoryWork:
    """Return the work of the episode that the current task plays, for tools. Raises LookupError elsewhere."""
    return _WORK.get()


@asynccontextmanager
async def working(
    shared: Repositories, problem: Problem, judge: ProgramJudge
) -> AsyncGenerator[RepositoryWork]:
    """The work of an episode, which ``current_work`` returns meanwhile. It is closed at the end."""
    work = RepositoryWork(shared, problem, judge)
    token = _WORK.set(work)
    try:
        yield work
    finally:
        _WORK.reset(token)
        await work.close()
