"""Grade a change of a repository: run the hidden tests on the base with the change.

The tests run in a fresh directory that has the base, the parts of the change that a task allows, and the
sealed test modules. The directory, its processes and its memory end with the run. A judgement has a score if
the tests are sealed; see ``whetstone.judge.repository.sealing``.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from whetstone.core.errors import UserError
from whetstone.core.problem import Limits
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict, storable
from whetstone.judge.environments.environment import check_reachable, environment_named
from whetstone.judge.environments.preload import python_profile
from whetstone.judge.options import HASH_SEED
from whetstone.judge.outcome import last_line, limit_exceeded, run_limits
from whetstone.judge.repository.base import Files, too_large
from whetstone.judge.repository.observations import ExpectedTest, TestReport, read_report
from whetstone.judge.repository.task import RepositoryTask
from whetstone.sandbox import EndReason, RunResult, Sandbox, SandboxFault, SandboxJob, Tier

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

_HARNESS = "run_tests"
_HARNESSES = {_HARNESS: Path(__file__).parent / "run_tests.py"}
_DISK_BYTES = 256 << 20
_ATTEMPTS = 2
_TIME_LIMITS = (EndReason.CPU_LIMIT, EndReason.WALL_LIMIT)
Change = Mapping[str, bytes | None]
"""New contents of files by their path; None removes a file."""


@dataclass(frozen=True)
class TestCommand:
    """Which files pytest runs, and how it finds modules and plug-ins."""

    files: Sequence[str]
    python_path: Sequence[str] = (".",)
    plugins: Sequence[str] = ()


class RepositoryGrader:
    """Runs hidden tests, at most ``workers`` at a time. Thread-safe."""

    def __init__(
        self,
        environment: str = "default",
        *,
        workers: int = 1,
        tier: Tier | None = None,
        minimum_tier: Tier = Tier.RESTRICTED,
        score_unsealed: bool = False,
    ) -> None:
        """Start the sandboxes. ``environment`` has pytest, and not the packages under test.

        With ``score_unsealed``, a judgement by tests that are not sealed has a score as well. Raises
        UserError for an environment without pytest, and SandboxUnavailable.
        """
        packages = environment_named(environment)
        if "pytest" not in packages.modules:
            raise UserError(
                f"the environment `{environment}` has no pytest; make one with `whetstone judge environment "
                "create NAME pytest`"
            )
        self.environment = packages.label
        self._modules = frozenset(packages.modules)
        self._name = packages.name
        self._score_unsealed = score_unsealed
        profile = replace(
            python_profile(packages),
            name="repository tests",
            imports=["pytest"],
            hash_seed=HASH_SEED,
            tmp_bytes=_DISK_BYTES,
        )
        self._idle: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()
        self._all: list[Sandbox] = []
        self._lock = threading.Lock()
        try:
            for _ in range(workers):
                sandbox = Sandbox(_HARNESSES, profile=profile, tier=tier, minimum_tier=minimum_tier)
                self._all.append(sandbox)
                self._idle.put(sandbox)
        except BaseException:
            self.close()
            raise
        self.tier = self._all[0].tier
        check_reachable(packages, self.tier.label)

    def grade(self, task: RepositoryTask, base: Files, change: Change) -> Judgement:
        """Judge a change of the ``base`` of a task. Parts that the task does not allow are ignored.

        The cases of the judgement are the tests of ``fail_to_pass`` and then those of ``pass_to_pass``. Its
        reasons name no expected value. A change with too many files or bytes is an OUTPUT_LIMIT. A failure of
        the sandbox is a JUDGE_ERROR. Raises ValueError for a task with another environment, or with one that
        contains the package under test.
        """
        if task.environment != self._name:
            raise ValueError(f"task {task.id} needs the environment `{task.environment}`, not `{self._name}`")
        if readable := self._modules & changed_modules(task):
            names = ", ".join(sorted(readable))
            raise ValueError(f"task {task.id}: programs could read {names} in the environment `{self._name}`")
        tests = [*task.fail_to_pass, *task.pass_to_pass]
        allowed = allowed_change(task, change)
        reason = too_large({path: data for path, data in allowed.items() if data is not None})
        files = {} if reason else changed_files(base, allowed)
        if reason := reason or too_large(files):
            cases = [
                CaseJudgement(Verdict.OUTPUT_LIMIT, reason=f"the change: {reason}", index=index)
                for index in range(len(tests))
            ]
            return self._judgement(task, cases)
        command = TestCommand([*task.tests], task.python_path, task.plugins)
        try:
            result, report = self.run_tests(files, task.tests, command, task.limits)
            if result.ended in _TIME_LIMITS and not _is_refuted(tests, report):
                # A time limit is confirmed by one more run, whose result counts.
                result, report = self.run_tests(files, task.tests, command, task.limits)
        except SandboxFault as fault:
            return Judgement(
                Verdict.JUDGE_ERROR,
                [],
                None,
                self.tier.label,
                storable(str(fault)),
                environment=self.environment,
            )
        return self._judgement(task, _judge_tests(tests, result, report))

    def _judgement(self, task: RepositoryTask, cases: list[CaseJudgement]) -> Judgement:
        """Judge the change by its tests. One that it certainly failed counts before one of unknown result."""
        others = [case for case in cases if case.verdict is not Verdict.ACCEPTED]
        failed = min(others, key=lambda case: case.verdict is Verdict.JUDGE_ERROR, default=None)
        unsealed = not task.sealed
        verdict = failed.verdict if failed else Verdict.ACCEPTED
        unpaid = verdict is Verdict.JUDGE_ERROR or (unsealed and not self._score_unsealed)
        return Judgement(
            verdict,
            cases,
            None if unpaid else float(failed is None),
            self.tier.label,
            failed.reason if failed else "",
            shared_interpreter=unsealed,
            environment=self.environment,
        )

    def run_tests(
        self, files: Files, modules: Mapping[str, str], command: TestCommand, limits: Limits
    ) -> tuple[RunResult, TestReport]:
        """Run test modules beside ``files`` in a fresh directory. Raises SandboxFault after two failures."""
        contents = {**files, **{path: text.encode() for path, text in modules.items()}}
        request = {
            "entries": [(name, len(data)) for name, data in contents.items()],
            "files": list(command.files),
            "paths": list(command.python_path),
            "plugins": list(command.plugins),
        }
        payload = b"".join((json.dumps(request).encode(), b"\n", *contents.values()))
        job = SandboxJob(_HARNESS, payload, run_limits(limits))
        for attempt in range(_ATTEMPTS):
            try:
                with self._sandbox() as sandbox:
                    result = sandbox.run(job)
                report = read_report(result.result)
                if not report.ready and limit_exceeded(result) is None:
                    raise SandboxFault(f"pytest could not be loaded: {last_line(result.stderr)}")
                return result, report
            except SandboxFault:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def _sandbox(self) -> Generator[Sandbox]:
        sandbox = self._idle.get()
        try:
            yield sandbox
        finally:
            self._idle.put(sandbox)

    def close(self) -> None:
        """End the sandboxes. No grading may be in progress."""
        for sandbox in self._all:
            sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def allowed_change(task: RepositoryTask, change: Change) -> dict[str, bytes | None]:
    """Return the parts of a change that the task allows."""
    return {path: data for path, data in change.items() if task.may_be_changed(path)}


def changed_modules(task: RepositoryTask) -> set[str]:
    """Return the top-level modules that the reference changes. The environment must not have them."""
    inside = {path.removeprefix(f"{folder}/") for path in task.reference for folder in task.python_path}
    return {path.partition("/")[0].removesuffix(".py") for path in inside}


def changed_files(base: Files, change: Change) -> dict[str, bytes]:
    """Return the files of a base after a change. A file in place of a folder removes what was below it."""
    removed = {path for path, data in change.items() if data is None}
    new = {path: data for path, data in change.items() if data is not None}
    folders = {path.rpartition("/")[0] for path in new}
    above = {folder[:end] for folder in folders for end in _ends(folder)}
    kept = {
        path: data
        for path, data in base.items()
        if path not in removed and path not in above and not any(path[:end] in new for end in _ends(path))
    }
    return {**kept, **{path: data for path, data in new.items() if path not in above}}


def _ends(path: str) -> list[int]:
    """Return the ends of the folders above a path, and of the path itself."""
    return [number for number, letter in enumerate(path) if letter == "/"] + [len(path)]


def _is_refuted(tests: Sequence[ExpectedTest], report: TestReport) -> bool:
    """Return whether a test reported a wrong value, so that no other run can change the result."""
    return any(test.is_refuted(report.runs.get(test.id, ())) for test in tests)


def _judge_tests(tests: Sequence[ExpectedTest], result: RunResult, report: TestReport) -> list[CaseJudgement]:
    """Judge the tests by the observations. Those that a limit prevented have its verdict.

    A wrong observation counts whatever happened later, so a program cannot hide it behind a limit.
    """
    stopped = limit_exceeded(result)
    cases: list[CaseJudgement] = []
    for index, test in enumerate(tests):
        runs = report.runs.get(test.id, ())
        failure = test.failure(runs)
        verdict = Verdict.WRONG_ANSWER if failure else Verdict.ACCEPTED
        unknown = bool(failure) and not test.is_refuted(runs)
        if unknown and stopped is not None:
            verdict, failure = stopped.verdict, stopped.reason
        elif unknown and not report.complete:
            verdict = Verdict.RUNTIME_ERROR
        cases.append(
            CaseJudgement(
                verdict,
                result.cpu_s / len(tests),
                result.wall_s / len(tests),
                result.peak_bytes,
                storable(failure and f"{test.id}: {failure}"),
                index,
            )
        )
    return cases
