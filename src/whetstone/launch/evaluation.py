"""The evaluation of one step of a run on one set of problems, in whichever process it happens."""

from __future__ import annotations

from dataclasses import dataclass

from whetstone.engine.base import Engine
from whetstone.evaluate.folder import EvaluationFolder
from whetstone.evaluate.harness import OurRules
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import Evaluation
from whetstone.evaluate.run import evaluate
from whetstone.evaluate.tally import Tally
from whetstone.launch.display import Display
from whetstone.problem import Problem
from whetstone.recipe import Recipe, WorkflowSection
from whetstone.workflow.prompt import Tokenizer
from whetstone.workflow.single_turn import ProgramJudge


@dataclass(frozen=True)
class Measured:
    """Problems, how they are asked, and how many replies are drawn; ``name`` is that of the metrics."""

    name: str
    problems: list[Problem]
    settings: WorkflowSection
    plan: Plan


def evaluation_plan(recipe: Recipe) -> Plan:
    """The sampling plan of evaluations: n, k and temperature of their own, the rest as in training."""
    settings = recipe.evaluation
    return Plan(
        n=settings.n,
        k=settings.k,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_tokens=recipe.sampling.max_tokens,
        stop=recipe.sampling.stop,
        seed=recipe.seed,
    )


async def evaluate_step(
    measured: Measured,
    step: int,
    folder: EvaluationFolder,
    *,
    engine: Engine,
    tokenizer: Tokenizer,
    judge: ProgramJudge,
    display: Display,
) -> Evaluation:
    """Evaluate, write everything to ``folder``, and show progress.

    All problems are one wave of the engine's, so the same weights give the same replies in any process.
    """
    plan, settings = measured.plan, measured.settings
    total = len(measured.problems) * plan.n
    display.begin(f"evaluating {measured.name} at step {step}", total)

    def show(tally: Tally) -> None:
        display.advance(tally.samples, f"accepted {tally.accepted / max(tally.samples, 1):.3f}")

    writer = EngineWriter(
        engine,
        tokenizer,
        plan.params(),
        max_prompt_tokens=settings.max_prompt_tokens,
        wave_replies=total,
    )
    with folder as files:
        evaluation = await evaluate(
            measured.problems,
            writer,
            OurRules(judge, settings),
            settings,
            plan,
            known=files.finished(),
            record=files.add,
            total=total,
            on_progress=show,
            manifest=files.manifest,
        )
        files.finish(evaluation)
    display.end(f"pass@1 {evaluation.pass_at[1].value:.3f}")
    return evaluation
