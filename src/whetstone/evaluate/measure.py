"""Measure a model on benchmarks: join replies, judge and rules, evaluate, show and save.

An evaluation judges by the rules of training, or by those of published graders.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from rich.console import Console

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import installed_comparisons, load_grader
from whetstone.core.problem import NoTests, Problem
from whetstone.core.progress import Progress
from whetstone.environments.environment import Environment
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.benchmarks import Benchmark
from whetstone.evaluate.evaluate import evaluate, prompts_of
from whetstone.evaluate.folder import EvaluationFolder, EvaluationUsage, add_seconds
from whetstone.evaluate.manifest import build_manifest
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyWriter
from whetstone.evaluate.results import Evaluation
from whetstone.evaluate.tables import interval, print_evaluation, shown
from whetstone.evaluate.tally import Tally
from whetstone.judge import AsyncJudge

Grading = Literal["ours", "official"]


def check_grading(name: Grading, problems: Iterable[Problem]) -> None:
    """Raise UserError for problems that these rules do not cover, and for rules that are not installed."""
    if name == "official":
        load_grader(name).check_problems(problems)


@asynccontextmanager
async def environment_by(
    name: Grading,
    judge: AsyncJudge,
    settings: EnvironmentSection,
    minimum_tier: str = "restricted",
) -> AsyncGenerator[Environment]:
    """Open the environment with these rules, for prompts by ``settings``."""
    if name == "ours":
        async with open_environment(settings) as environment:
            yield environment
        return
    with load_grader(name)(judge, settings, minimum_tier) as rules:
        yield rules


TierName = Literal["root", "userns", "restricted"]


class EvaluatedModel(Protocol):
    """The writer of the judged replies: an ``EmbeddedModel`` or an ``EndpointModel``."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The description for the manifest: weights or address, and their settings."""
        ...

    def writer(self, plan: SamplingPlan, settings: EnvironmentSection) -> ReplyWriter:
        """Return the writer of the replies of one evaluation."""
        ...

    async def close(self) -> None:
        """Free its resources."""
        ...


class EvaluationTask(Struct, frozen=True):
    """A benchmark, the name of its result, its prompt settings, its sampling plan, and the rules of judging
    (see ``grading.check_grading``)."""

    name: str
    benchmark: Benchmark
    settings: EnvironmentSection
    plan: SamplingPlan
    grading: Grading = "ours"


class _EvaluationResult(Struct, frozen=True):
    """A result, its usage, and its folder."""

    evaluation: Evaluation
    usage: EvaluationUsage
    folder: str | None


def measure(
    tasks: Sequence[EvaluationTask],
    model: EvaluatedModel,
    *,
    workers: int = 0,
    minimum_tier: TierName = "restricted",
    environment: str = "",
    out: str | Path | None = None,
    restart: bool = False,
    console: Console | None = None,
) -> dict[str, _EvaluationResult]:
    """Evaluate the model on one benchmark after the other, and print progress and results.

    With ``out``, each result is written to the folder ``out/NAME``; an interrupted run is resumed there,
    unless ``restart``. ``workers`` of the judge: 0 means one for each core. ``environment`` has the packages
    that programs may import. The model is closed at the end. Raises UserError
    for a model that does not answer or a folder with other contents, and SandboxUnavailable below
    ``minimum_tier``.
    """
    judge = AsyncJudge(
        workers,
        minimum_tier=minimum_tier,
        environment=environment,
        comparisons=installed_comparisons(),
    )
    measuring = _Measuring(model, judge, minimum_tier, out, restart, console or Console())
    return asyncio.run(measuring.run(tasks))


@dataclass(frozen=True)
class _Measuring:
    """A model, the judge of its replies, and the outputs; see ``measure``."""

    model: EvaluatedModel
    judge: AsyncJudge
    minimum_tier: TierName
    out: str | Path | None
    restart: bool
    console: Console

    async def run(self, tasks: Sequence[EvaluationTask]) -> dict[str, _EvaluationResult]:
        """Evaluate the model on all benchmarks, and close it."""
        results: dict[str, _EvaluationResult] = {}
        try:
            async with self.judge as judge:
                for task in tasks:
                    rules = environment_by(task.grading, judge, task.settings, self.minimum_tier)
                    async with rules as environment:
                        results[task.name] = await self._evaluate(task, environment)
        finally:
            await self.model.close()
        return results

    async def _evaluate(self, task: EvaluationTask, environment: Environment) -> _EvaluationResult:
        problems, plan = task.benchmark.problems, task.plan
        # Before the folder exists, which keeps the settings of its evaluation.
        for problem in problems:
            if isinstance(problem.tests, NoTests):
                environment.check(problem)
        total = len(problems) * plan.n
        manifest = build_manifest(
            task.benchmark,
            plan,
            task.settings,
            model=self.model.manifest,
            grading=task.grading,
            isolation=self.judge.isolation,
            packages=self.judge.environment,
        )
        folder = None
        if self.out is not None:
            folder = EvaluationFolder(Path(self.out) / task.name, manifest, restart=self.restart)
        writer = self.model.writer(plan, task.settings)
        start = time.monotonic()
        with folder or nullcontext(), ProgressView(task.name, total, self.console) as view:
            try:
                evaluation = await evaluate(
                    problems,
                    writer,
                    environment,
                    self.judge,
                    plan,
                    known=folder.finished() if folder else (),
                    record=folder.add if folder else None,
                    total=total,
                    on_progress=view.show,
                    on_minute=view.minute,
                    on_failures=view.say,
                    manifest=manifest,
                )
            except (UserError, asyncio.CancelledError):
                if folder:
                    self._say(f"{folder.path} keeps what is judged; the same command goes on from there")
                raise
            finally:
                seconds = time.monotonic() - start
                if folder:
                    # An interrupted evaluation adds the time of all its runs.
                    seconds = add_seconds(folder.path, seconds)
            if folder:
                folder.keep_prompts(prompts_of(environment, problems))
                folder.finish(evaluation)
        shares = evaluation.shares
        usage = EvaluationUsage(shares.tokens, shares.prompt_tokens, seconds)
        print_evaluation(task.name, evaluation, self.console, usage=usage)
        if folder:
            self._say(f"saved: {folder.path}")
        return _EvaluationResult(evaluation, usage, str(folder.path) if folder else None)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


def summary(measured: _EvaluationResult) -> dict[str, Any]:
    """Return estimates with intervals, shares, tables, usage and manifest; replies are in the folder's
    files."""
    found = measured.evaluation
    return {
        "problems": len(found.problems),
        "pass_at": {str(k): msgspec.to_builtins(estimate) for k, estimate in found.pass_at.items()},
        "reward": msgspec.to_builtins(found.reward),
        "episode": found.episode,
        "shares": msgspec.to_builtins(found.shares),
        "tables": msgspec.to_builtins(found.tables),
        "usage": msgspec.to_builtins(measured.usage),
        "folder": measured.folder,
        "manifest": found.manifest,
    }


_NOTE_EVERY_S = 0.2


class ProgressView:
    """The progress of an evaluation with the running estimate and its pending replies. A context manager."""

    def __init__(self, name: str, total: int, console: Console) -> None:
        self._progress = Progress(console, transient=False)
        self._work = self._progress.begin(name, total)
        self._noted = self._last_reported = -1
        self._noted_at = time.monotonic()

    def __enter__(self) -> ProgressView:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def show(self, tally: Tally) -> None:
        """Show the counts. Called once with the replies of earlier runs, and then for every reply."""
        now, first, last = time.monotonic(), self._noted < 0, tally.samples == tally.total
        if first:
            self._work.skip(tally.samples)
        # For short evaluations, an estimate takes longer than a reply.
        if first or last or now - self._noted_at >= _NOTE_EVERY_S:
            self._noted, self._noted_at = tally.samples, now
            self._work.update(tally.samples, _note(tally))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._progress.say(text)

    def minute(self, tally: Tally, pending: str) -> None:
        """Print the pending replies if no reply arrived. Called every minute."""
        advanced, self._last_reported = tally.samples > self._last_reported, tally.samples
        if not advanced:
            line = self._work.line()
            self._progress.say(f"{line}, {pending}" if pending else line)
            self._work.mark_printed()


def _note(tally: Tally) -> str:
    found = tally.so_far()
    if found is None:
        return ""
    name, estimate = found
    note = f"{name} {shown(name, estimate.value)} ({interval(name, estimate.low, estimate.high)})"
    without = tally.failed + tally.judge_errors
    return f"{note}, {without} without a result" if without else note
