"""Evaluates a step's weights on a run's problem sets, in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone.core.problem import Problem
from whetstone.engine.engine import Engine
from whetstone.environments.environment import Environment
from whetstone.environments.prompt import Tokenizer
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.benchmarks import load_benchmark, problems_hash
from whetstone.evaluate.evaluate import evaluate, prompts_of
from whetstone.evaluate.folder import EvaluationFolder, holds
from whetstone.evaluate.measure import Grading, check_grading, environment_by
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import Evaluation
from whetstone.evaluate.tally import Tally
from whetstone.judge import AsyncJudge
from whetstone.report.metrics import Record
from whetstone.run.display import Display
from whetstone.run.problem_sets import ProblemSets
from whetstone.run.recipe import Recipe
from whetstone.run.records import eval_record

if TYPE_CHECKING:
    from whetstone.run.run_judge import RunJudge


@dataclass(frozen=True)
class EvaluationSet:
    """Problems with their prompt settings, sampling plan and grading rules. ``name`` is used in metrics."""

    name: str
    problems: list[Problem]
    settings: EnvironmentSection
    plan: SamplingPlan
    grading: Grading = "ours"


def evaluation_sets(recipe: Recipe, sets: ProblemSets) -> list[EvaluationSet]:
    """Return the evaluation sets of a run, with the same problems and seeds at every step.

    Raises UserError for a missing benchmark, or one that cannot be judged by the requested rules.
    """
    evaluation = recipe.evaluation
    plan = evaluation.plan(recipe.sampling, recipe.seed)
    measured = [
        EvaluationSet(name, problems, recipe.environment, plan)
        for name, problems in sets.evaluation_problems(recipe).items()
    ]
    for entry, settings, own_plan in evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
        problems = load_benchmark(entry.benchmark, entry.data, limit=entry.limit or 0).problems
        grading = entry.harness or "ours"
        check_grading(grading, problems)
        measured.append(EvaluationSet(entry.title, problems, settings, own_plan, grading))
    return measured


def _manifest(measured: EvaluationSet, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Describe the evaluation of ``measured`` with the weights of ``checkpoint``, in plain JSON values."""
    return {
        "checkpoint": checkpoint,
        "problems_sha256": problems_hash(measured.problems),
        "sampling": measured.plan.model_dump(mode="json"),
        "environment": measured.settings.model_dump(mode="json"),
        **({} if measured.grading == "ours" else {"grading": measured.grading}),
    }


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a run's weights; the files go to ``evaluations`` in the run's folder.

    ``minimum_tier`` is the weakest isolation for running a grader's references.
    """

    run: Path
    measured: Sequence[EvaluationSet]
    judge: RunJudge
    display: Display
    minimum_tier: str = "restricted"

    async def evaluate_engine(
        self, step: int, engine: Engine, tokenizer: Tokenizer, *, digest: str | None = None
    ) -> Record:
        """Evaluate the weights that ``engine`` serves, those of ``step``, and return the record.

        digest: identifies their checkpoint, so that a killed evaluation can resume. Weights between two
        checkpoints have no digest: a resumed run computes and evaluates them again.
        """
        start = time.perf_counter()
        evaluations: dict[str, Evaluation] = {}
        for measured in self.measured:
            with self._folder(measured, step, digest) as files:
                evaluations[measured.name] = await self._evaluate(measured, step, files, engine, tokenizer)
        record = eval_record(step, evaluations, time.perf_counter() - start)
        return record if digest is None else {**record, "checkpoint": digest}

    def _progress_callback(self) -> Callable[[Tally], None]:
        """Return a callback that shows the progress of one set."""
        begun = False

        def show(tally: Tally) -> None:
            nonlocal begun
            if not begun:
                # The first call has the replies of an earlier attempt.
                self.display.skip(tally.samples)
            begun = True
            if tally.samples:
                self.display.advance(tally.samples, tally.note)

        return show

    def _folder(self, measured: EvaluationSet, step: int, digest: str | None) -> EvaluationFolder:
        """Return the step's folder, without replies of other weights from an earlier start of the run."""
        folder = self.run / "evaluations" / f"step-{step}-{measured.name}"
        # Weights without a checkpoint cannot be identified later, so nothing of them is reused.
        if digest is None:
            return EvaluationFolder(folder, {}, restart=True)
        content = _manifest(measured, {"step": step, "digest": digest})
        return EvaluationFolder(folder, content, restart=not holds(folder, content))

    def _environment(self, measured: EvaluationSet) -> AbstractAsyncContextManager[Environment]:
        if measured.grading == "ours":
            return open_environment(measured.settings)
        # Official rules need a local judge; `preflight.py` checks this.
        assert isinstance(self.judge, AsyncJudge)
        return environment_by(measured.grading, self.judge, measured.settings, self.minimum_tier)

    async def _evaluate(
        self,
        measured: EvaluationSet,
        step: int,
        files: EvaluationFolder,
        engine: Engine,
        tokenizer: Tokenizer,
    ) -> Evaluation:
        """Evaluate one set. All problems form one wave of the engine, so the same weights always give the
        same replies."""
        plan, settings = measured.plan, measured.settings
        total = len(measured.problems) * plan.n
        self.display.begin(f"evaluating {measured.name} at step {step}", total)
        limit = settings.max_prompt_tokens
        replies = EngineReplies(engine, tokenizer, plan, max_prompt_tokens=limit)
        async with self._environment(measured) as environment:
            files.keep_prompts(prompts_of(environment, measured.problems))
            evaluation = await evaluate(
                measured.problems,
                EngineWriter(replies, wave_replies=total),
                environment,
                self.judge,
                plan,
                known=files.finished(),
                record=files.add,
                total=total,
                on_progress=self._progress_callback(),
                manifest=files.manifest,
            )
        files.finish(evaluation)
        name, estimate = evaluation.headline
        self.display.end(f"{name} {estimate.value:.3f}")
        return evaluation
