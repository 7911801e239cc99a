"""A run in stages goes on in the stage where it was, from the weights of the one before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.tiny_recipe import write_recipe
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.data.builtin import shipped_problems
from whetstone.evaluate.plan import SamplingPlan
from whetstone.report.metrics import Record, read_metrics
from whetstone.run.evaluation import EvaluationSet
from whetstone.run.evaluations import best_step, steps_to_keep
from whetstone.run.recipe import Recipe, load_recipe, stage_recipes
from whetstone.run.stages import same_evaluation

EVALUATION = "evaluation={n: 1, k: [1], train_problems: 2, max_tokens: 12}"
SMALL = ["deterministic=false", "warmup.steps=2", "data.heldout=null", EVALUATION]
SMALL += ["trainer.keep_best=train/pass@1", "trainer.keep_checkpoints=1"]
STAGES = (
    "stages=[{name: short, sampling: {max_tokens: 8}, algorithm: {overlong_buffer: 2}, trainer: {steps: 1}},"
)


def evaluations(run: Path) -> list[Record]:
    return [record for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "eval"]


def figures(record: Record) -> Record:
    return {name: value for name, value in record.items() if name.startswith("eval/")}


def test_what_another_stage_asks_otherwise_is_evaluated_anew(tmp_path: Path) -> None:
    recipe = load_recipe(
        write_recipe(tmp_path), ["stages=[{name: a}, {name: b, sampling: {max_tokens: 16}}]"]
    )
    problems = list(shipped_problems("builtin:train"))[:2]
    here, there = (EvaluationSet("train", problems, r.environment, plan_of(r)) for r in stage_recipes(recipe))
    assert here.plan.seed == there.plan.seed
    assert not same_evaluation(here, there)
    assert same_evaluation(here, replace(there, plan=here.plan, name="other"))
    assert not same_evaluation(here, replace(here, problems=problems[:1]))


def plan_of(recipe: Recipe) -> SamplingPlan:
    return recipe.evaluation.plan(recipe.sampling, recipe.seed)


RECORDS: dict[int, Record] = {
    step: {"step": step, "eval/heldout/pass@1": value}
    for step, value in ((0, 0.1), (4, 0.5), (8, 0.5), (12, 0.2))
}


def test_the_best_checkpoint_stays_and_those_that_may_yet_be(tmp_path: Path) -> None:
    keep = ["evaluation.every=4", "trainer.keep_best=heldout/pass@1"]
    recipe = load_recipe(write_recipe(tmp_path), keep)
    worth = steps_to_keep(recipe, tmp_path, lambda: RECORDS)
    assert worth([12, 8, 4, 2, 0]) == {4}
    assert worth([12, 8, 6, 0]) == {8}
    assert worth([20, 18, 16, 12, 8]) == {8, 16, 20}
    plain = load_recipe(write_recipe(tmp_path))
    assert steps_to_keep(plain, tmp_path, lambda: RECORDS)([12, 8]) == set()


def test_the_best_by_reward_is_by_pass_1_where_both_are_the_same_number() -> None:
    assert best_step(RECORDS, "heldout/reward") == best_step(RECORDS, "heldout/pass@1") == 4
    shaped = {step: {**record, "eval/heldout/reward": -step} for step, record in RECORDS.items()}
    assert best_step(shaped, "heldout/reward") == 0
    assert best_step({}, "heldout/reward") is None


def test_the_best_by_what_an_environment_does_not_report_names_what_it_does() -> None:
    rewards: dict[int, Record] = {0: {"step": 0, "eval/heldout/reward": 0.5}}
    with pytest.raises(UserError, match="set it to `heldout/reward` and resume"):
        best_step(rewards, "heldout/pass@1")
    assert best_step(rewards, "heldout/reward") == 0


@pytest.mark.extended
@pytest.mark.process
def test_a_stage_that_is_done_is_left_and_the_next_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_recipe(tmp_path), tmp_path / "run"

    def train(stages: str) -> int:
        return main(["train", str(recipe), f"out={out}", *SMALL, stages])

    assert train(STAGES + "{name: long, trainer: {steps: 1}}]") == 0
    first, second = out / "1-short", out / "2-long"
    model = "model.safetensors"
    started, ended = second / "checkpoints" / "step-0" / model, first / "checkpoints" / "step-1" / model
    assert started.read_bytes() == ended.read_bytes()
    before = (first / "metrics.jsonl").read_bytes()
    said = capsys.readouterr().out
    assert f"{second}: step 0 on train is copied from {first}: same weights, same settings" in said
    last, border = evaluations(first)[-1], evaluations(second)[0]
    assert (last["step"], border["step"]) == (1, 0)
    assert figures(last) == figures(border)
    replies = [
        run / "evaluations" / f"step-{step}-train" / "samples.jsonl"
        for run, step in ((first, 1), (second, 0))
    ]
    assert replies[0].read_bytes() == replies[1].read_bytes()
    # A model this small solves nothing, so the first of equals is the best.
    assert f"best by train/pass@1: 0.000 at step 0, kept in {started.parent}" in said

    assert train(STAGES + "{name: long, trainer: {steps: 2}}]") == 0
    said = capsys.readouterr().out
    assert "stage 1 of 2, short: is done" in said
    assert f"resuming {second} from step 1" in said
    assert (first / "metrics.jsonl").read_bytes() == before
    steps = [record["step"] for record in read_metrics(second / "metrics.jsonl") if record["kind"] == "train"]
    assert steps == [1, 2]

    assert train(STAGES.replace("steps: 1", "steps: 1, lr: 0.5") + "{name: long, trainer: {steps: 2}}]") == 2
    assert "trainer.lr (0.001 there, 0.5 now)" in capsys.readouterr().err
