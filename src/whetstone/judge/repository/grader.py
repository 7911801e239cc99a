"""Grade a change of a repository: run the hidden tests on the base with the change.

The tests run in a fresh directory that has the base, the parts of the change that a task allows, and the
sealed test modules. The directory, its processes and its memory end with the run. A judgement has a score if
the tests are sealed; see ``whetstone.judge.repository.sealing``.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.core.problem import Limits
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict, storable
from whetstone.judge.environments.environment import check_reachable, environment_named
from whetstone.judge.environments.preload import python_profile
from whetstone.judge.options import HASH_SEED
from whetstone.judge.outcome import last_line, limit_exceeded, run_limits
from whetstone.judge.repository.base import Files, folders_above, too_large
from whetstone.judge.repository.observations import ExpectedTest, TestReport, read_report
from whetstone.judge.repository.task import RepositoryTask
from whetstone.sandbox import EndReason, RunResult, Sandbox, SandboxFault, SandboxJob, Tier

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


class RepositoryGrader(Closing):
    """Runs hidden tests, at most ``workers`` at a time. Thread-safe."""

    def __init__(
        self,
        environment: str = "default",
        *,
        workers: int = 1,
        tier: Tier | None = None,
        minimum_tier: Tier = Tier.RESTRICTED,
    ) -> None:
        """Start the sandboxes. ``environment`` has pytest, and not the packages under test.

        Raises UserError for an environment without pytest, and SandboxUnavailable.
        """
        packages = environment_named(environment)
        if "pytest" not in packages.modules:
            raise UserError(
                f"the environment `{environment}` has no pytest; make one with `whetstone judge environment "
                "create NAME pytest`"
            )
        self.environment = packages.label
        self._name, self._modules = packages.name, frozenset(packages.modules)
        self._proven: set[tuple[str, str]] = set()
        profile = replace(
            python_profile(packages),
            name="repository tests",
            imports=["pytest"],
            hash_seed=HASH_SEED,
            tmp_bytes=_DISK_BYTES,
        )
        self._idle: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()
        with ExitStack() as opened:
            for _ in range(workers):
                sandbox = Sandbox(_HARNESSES, profile=profile, tier=tier, minimum_tier=minimum_tier)
                self._idle.put(opened.enter_context(sandbox))
                self.tier = sandbox.tier
            check_reachable(packages, self.tier.label)
            self._opened = opened.pop_all()

    def require_accepted_reference(self, task: RepositoryTask, base: Files) -> None:
        """Grade the reference of a task, once for each task.

        Its tests were recorded at one isolation tier with one environment of packages. Elsewhere they may
        observe something else, and then no change can pass. Raises UserError if it is not accepted.
        """
        if not task.reference or (task.id, task.base) in self._proven:
            return
        judgement = self.grade(task, base, task.reference_change())
        if judgement.accepted:
            self._proven.add((task.id, task.base))
        elif judgement.verdict is not Verdict.JUDGE_ERROR:
            raise UserError(
                f"task {task.id}: its own reference is not accepted at isolation tier `{self.tier.label}` in "
                f"the environment `{self.environment}` ({judgement.verdict}: {judgement.reason}). Use the "
                "tier and the environment in which its tests were recorded, or record them again."
            )

    def grade(self, task: RepositoryTask, base: Files, change: Change) -> Judgement:
        """Judge a change of the ``base`` of a task. Parts that the task does not allow are ignored.

        The cases of the judgement are the tests of ``fail_to_pass`` and then those of ``pass_to_pass``. Its
        reasons name no expected value. A change with too many files or bytes is an OUTPUT_LIMIT. A failure of
        the sandbox is a JUDGE_ERROR. Before another change than the reference is refused, the reference is
        graded. Raises UserError if it is not accepted, and for a task with another environment, or with one
        that contains the package under test.
        """
        if task.environment != self._name:
            raise UserError(f"task {task.id} needs the environment `{task.environment}`, not `{self._name}`")
        if readable := self._modules & changed_modules(task):
            names = ", ".join(sorted(readable))
            raise UserError(f"task {task.id}: programs could read {names} in the environment `{self._name}`")
        tests = [*task.fail_to_pass, *task.pass_to_pass]
        try:
            cases = self._judge_tests(task, tests, base, allowed_change(task, change))
        except SandboxFault as fault:
            cases, reason, verdict = [], storable(str(fault)), Verdict.JUDGE_ERROR
        else:
            # One that it certainly failed counts before one of unknown result.
            others = [case for case in cases if case.verdict is not Verdict.ACCEPTED]
            failed = min(others, key=lambda case: case.verdict is Verdict.JUDGE_ERROR, default=None)
            verdict, reason = (failed.verdict, failed.reason) if failed else (Verdict.ACCEPTED, "")
        is_refused = verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
        if is_refused and change != task.reference_change():
            self.require_accepted_reference(task, base)
        unpaid = verdict is Verdict.JUDGE_ERROR or not task.sealed
        return Judgement(
            verdict,
            cases,
            None if unpaid else float(verdict is Verdict.ACCEPTED),
            self.tier.label,
            reason,
            shared_interpreter=not task.sealed,
            environment=self.environment,
        )

    def _judge_tests(
        self, task: RepositoryTask, tests: Sequence[ExpectedTest], base: Files, change: Change
    ) -> list[CaseJudgement]:
        """Run the tests and judge each. Raises SandboxFault."""
        reason = too_large({path: data for path, data in change.items() if data is not None})
        files = {} if reason else changed_files(base, change)
        if reason := reason or too_large(files):
            verdict, reason = Verdict.OUTPUT_LIMIT, f"the change: {reason}"
            return [CaseJudgement(verdict, reason=reason, index=index) for index in range(len(tests))]
        command = TestCommand([*task.tests], task.python_path, task.plugins)
        result, report = self.run_tests(files, task.tests, command, task.limits)
        if result.ended in _TIME_LIMITS and not any(
            test.is_refuted(report.runs.get(test.id, ())) for test in tests
        ):
            # A time limit is confirmed by one more run, whose result counts.
            result, report = self.run_tests(files, task.tests, command, task.limits)
        return _judge_report(tests, result, report)

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
            sandbox = self._idle.get()
            try:
                result = sandbox.run(job)
                report = read_report(result.result)
                if not report.ready and limit_exceeded(result) is None:
                    raise SandboxFault(f"pytest could not be loaded: {last_line(result.stderr)}")
                return result, report
            except SandboxFault:
                if attempt + 1 == _ATTEMPTS:
                    raise
            finally:
                self._idle.put(sandbox)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the sandboxes. No grading may be in progress."""
        self._opened.close()


def allowed_change(task: RepositoryTask, change: Change) -> dict[str, bytes | None]:
    """Return the parts of a change that the task allows."""
    return {path: data for path, data in change.items() if task.may_be_changed(path)}


def changed_modules(task: RepositoryTask) -> set[str]:
    """Return the top-level modules that the reference changes. The environment must not have them."""
    inside = {path.removeprefix(f"{folder}/") for path in task.reference for folder in task.python_path}
    return {path.partition("/")[0].removesuffix(".py") for path in inside}


def changed_files(base: Files, change: Change) -> dict[str, bytes]:
    """Return the files of a base after a change. A file in place of a folder removes what was below it."""
    new = {path: data for path, data in change.items() if data is not None}
    folders = {folder for path in new for folder in folders_above(path)}
    kept = {
        path: data
        for path, data in base.items()
        if path not in change and new.keys().isdisjoint(folders_above(path))
    }
    return {path: data for path, data in {**kept, **new}.items() if path not in folders}


def _judge_report(
    tests: Sequence[ExpectedTest], result: RunResult, report: TestReport
) -> list[CaseJudgement]:
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
