"""The evaluation of a step's weights on a run's problem sets, in whichever process it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import load_model
from whetstone.engine.settings import SERVERS, EngineSection, ModelSection
from whetstone.evaluate.benchmarks import load_benchmark, problems_hash
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, holds, read_manifest
from whetstone.evaluate.grading import Grading, check_grading, workflow_by
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import Evaluation
from whetstone.evaluate.tally import Tally
from whetstone.judge import AsyncJudge
from whetstone.launch.display import Display
from whetstone.launch.problem_sets import ProblemSets
from whetstone.launch.recipe import Recipe
from whetstone.launch.records import eval_record
from whetstone.problem import Problem
from whetstone.report.metrics import Record
from whetstone.workflow.episode import Workflow
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.prompt import Tokenizer
from whetstone.workflow.replies import EngineReplies
from whetstone.workflow.settings import WorkflowSection

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


@dataclass(frozen=True)
class Measured:
    """Problems, how they are asked, how replies are drawn and by whose rules they are judged; ``name`` is
    that of the metrics."""

    name: str
    problems: list[Problem]
    settings: WorkflowSection
    plan: Plan
    grading: Grading = "ours"


def own_sets(recipe: Recipe, sets: ProblemSets) -> list[Measured]:
    """What a run is evaluated on: the same problems and seeds at every step.

    Raises UserError for a benchmark that is not there, or that cannot be judged by the rules asked for.
    """
    evaluation = recipe.evaluation
    plan = evaluation.plan(recipe.sampling, recipe.seed)
    measured = [
        Measured(name, problems, recipe.workflow, plan) for name, problems in sets.evaluated(recipe).items()
    ]
    for entry, settings, own_plan in evaluation.planned(recipe.sampling, recipe.workflow, recipe.seed):
        problems = load_benchmark(entry.benchmark, entry.data, limit=entry.limit or 0).problems
        grading = entry.harness or "ours"
        check_grading(grading, problems)
        measured.append(Measured(entry.title, problems, settings, own_plan, grading))
    return measured


def evaluation_manifest(measured: Measured, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """How ``measured`` was evaluated with the weights of ``checkpoint``, in plain JSON values."""
    return {
        "checkpoint": checkpoint,
        "problems_sha256": problems_hash(measured.problems),
        "sampling": measured.plan.model_dump(mode="json"),
        "workflow": measured.settings.model_dump(mode="json"),
        **({} if measured.grading == "ours" else {"grading": measured.grading}),
    }


def _taken_over(folder: Path, measured: Measured) -> dict[str, Any] | None:
    """The manifest of replies that were taken over from the stage before, if these are such."""
    found = read_manifest(folder)
    checkpoint = found.get("checkpoint", {})
    taken = "taken_from" in checkpoint and found == evaluation_manifest(measured, checkpoint)
    return found if taken else None


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a run's weights, step by step; the files go to ``evaluations`` in the run's folder.

    ``minimum_tier`` is the weakest isolation that a grader's references may be run with."""

    run: Path
    measured: Sequence[Measured]
    judge: RunJudge
    display: Display
    minimum_tier: str = "restricted"

    async def served(
        self, step: int, engine: Engine, tokenizer: Tokenizer, *, digest: str | None = None
    ) -> Record:
        """Evaluate the weights that ``engine`` serves, which are those of ``step``, and return the record.

        digest: names the checkpoint they are of, so that a killed evaluation goes on where it was. Weights
            between two steps have no name: a killed run makes them anew, and so their evaluation.
        """
        start = time.perf_counter()
        evaluations: dict[str, Evaluation] = {}
        self.display.evaluating(0.0)
        for measured in self.measured:
            with self._folder(measured, step, digest) as files:
                evaluations[measured.name] = await self._evaluate(measured, step, files, engine, tokenizer)
        self.display.evaluating(1.0)
        record = eval_record(step, evaluations, time.perf_counter() - start)
        return record if digest is None else {**record, "checkpoint": digest}

    def _shown(self, measured: Measured) -> Callable[[Tally], None]:
        """What shows the replies of one set, which are a share of those of all sets."""
        sizes = {each.name: len(each.problems) * each.plan.n for each in self.measured}
        before, begun = sum(sizes[name] for name in takewhile(measured.name.__ne__, sizes)), False

        def show(tally: Tally) -> None:
            nonlocal begun
            if not begun:
                self.display.skip(tally.samples)  # those that were there
            elif tally.samples < sizes[measured.name]:
                self.display.evaluating((before + tally.samples) / sum(sizes.values()))
            begun = True
            if tally.samples:
                self.display.advance(tally.samples, f"accepted {tally.accepted / tally.samples:.3f}")

        return show

    async def saved(
        self, step: int, model: Path, settings: ModelSection, engine: EngineSection, *, digest: str
    ) -> Record:
        """The same for the checkpoint in the folder ``model``, with an engine of its own."""
        device = "cpu" if engine.kind in SERVERS else settings.device
        loaded = load_model(str(model), dtype=settings.dtype, device=device)
        serving = build_engine(engine, lambda: loaded.model.requires_grad_(False), loaded.tokenizer)
        try:
            return await self.served(step, serving, loaded.tokenizer, digest=digest)
        finally:
            await serving.close()

    def _folder(self, measured: Measured, step: int, digest: str | None) -> EvaluationFolder:
        """The step's folder. Replies of other weights, of an earlier life of the run, are dropped.

        Those that a stage took over from the one before (``borders.py``) are of the same weights.
        """
        folder = self.run / "evaluations" / f"step-{step}-{measured.name}"
        if step == 0 and (taken := _taken_over(folder, measured)):
            return EvaluationFolder(folder, taken)
        if digest is None:
            return EvaluationFolder(folder, {}, restart=True)
        content = evaluation_manifest(measured, {"step": step, "digest": digest})
        return EvaluationFolder(folder, content, restart=not holds(folder, content))

    def _workflow(self, measured: Measured) -> AbstractContextManager[Workflow]:
        if measured.grading == "ours":
            return nullcontext(build_workflow(measured.settings, self.judge))
        assert isinstance(self.judge, AsyncJudge)  # see structure.py
        return workflow_by(measured.grading, self.judge, measured.settings, self.minimum_tier)

    async def _evaluate(
        self, measured: Measured, step: int, files: EvaluationFolder, engine: Engine, tokenizer: Tokenizer
    ) -> Evaluation:
        """All problems are one wave of the engine's: the same weights give the same replies anywhere."""
        plan, settings = measured.plan, measured.settings
        total = len(measured.problems) * plan.n
        self.display.begin(f"evaluating {measured.name} at step {step}", total)
        show = self._shown(measured)

        limit = settings.max_prompt_tokens
        replies = EngineReplies(engine, tokenizer, plan, max_prompt_tokens=limit)
        with self._workflow(measured) as workflow:
            files.keep_prompts((problem.id, workflow.prompt(problem)) for problem in measured.problems)
            evaluation = await evaluate(
                measured.problems,
                EngineWriter(replies, wave_replies=total),
                workflow,
                plan,
                known=files.finished(),
                record=files.add,
                total=total,
                on_progress=show,
                manifest=files.manifest,
            )
        files.finish(evaluation)
        self.display.end(f"pass@1 {evaluation.pass_at[1].value:.3f}")
        return evaluation
