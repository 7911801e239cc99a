"""Planted misconfigurations of real runs show their sign on the terminal, in metrics.jsonl and on the page;
the same run without them is silent. A warm-up that fits no task is named before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.run.tiny_recipe import write_recipe
from whetstone.cli.main import main
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement, Verdict
from whetstone.data.micro import micro_problems
from whetstone.judge import AsyncJudge
from whetstone.report.metrics import read_metrics
from whetstone.report.run_data import read_run
from whetstone.report.run_page import run_page
from whetstone.run.checks import warmup_note
from whetstone.run.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("trainer.steps=6", "data.heldout=null", "evaluation.train_problems=0", "deterministic=false")


def trained(folder: Path, *overrides: str) -> list[dict[str, Any]]:
    """Train in this process; return the records of its steps."""
    out = folder / "run"
    assert main(["train", str(write_recipe(folder)), f"out={out}", *SHORT, *overrides]) == 0
    return [record for record in read_metrics(out / "metrics.jsonl") if record["kind"] == "train"]


def signs_in(record: dict[str, Any]) -> set[str]:
    return {key.removeprefix("sign/") for key in record if key.startswith("sign/")}


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize(
    ("overrides", "sign", "said"),
    [
        (["sampling.max_tokens=1", "algorithm.overlong_buffer=0"], "cut", "were cut at the token limit"),
        (["environment.extraction=first_fence", "environment.prefix=''"], "no_code", "have no program"),
        ([], "", ""),
    ],
    ids=["too few tokens", "wrong format", "twin"],
)
def test_a_planted_misconfiguration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], sign: str, said: str
) -> None:
    records = trained(tmp_path, *overrides)
    shown = capsys.readouterr().out
    if not sign:
        assert not [record for record in records if signs_in(record)]
        assert "warning" not in shown
        return
    assert [sign in signs_in(record) for record in records] == [False] * 4 + [True] * 2
    # Once when it begins, and once at the end.
    lines = [line for line in shown.splitlines() if line.startswith("warning") and said in line]
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["steps 1 to 5", "steps 1 to 6"]
    warnings = run_page(read_run(tmp_path / "run"), {})["panels"][0]
    assert [text for _, text in warnings.rows if said in text]


class DyingJudge(AsyncJudge):
    """A judge that judges the checks before a run, 16 replies of its first step and half of its second."""

    left = 1 + 16 + 16 + 8

    async def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Judgement:
        self.left -= 1
        if self.left < 0:
            return Judgement(Verdict.JUDGE_ERROR, [], None, "root", reason="its machine is gone")
        return await super().judge(problem, program, **options)


@pytest.mark.process
@pytest.mark.extended
def test_a_judge_that_dies_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone.run.run_judge.AsyncJudge", DyingJudge)
    records = trained(tmp_path, "trainer.steps=9")
    assert [record["sample/unscored"] > 0 for record in records] == [False, *[True] * 8]
    assert signs_in(records[-1]) == {"no_reward", "no_signal"}
    shown = capsys.readouterr().out
    assert "of the replies have no reward, because they could not be judged" in shown
    assert "no step changed the model" in shown


def micro() -> list[Problem]:
    return micro_problems("train")[:3]


@pytest.mark.parametrize("name", ["tiny", "tour", "tiny-verifier", "quickstart"])
def test_shipped_recipes_warm_up_for_their_training_task(name: str) -> None:
    assert warmup_note(load_recipe(ROOT / "recipes" / f"{name}.yaml", []), micro()) == ""


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('environment.prompt="Task: {statement}"', "its prompts are '# {statement}"),
        ("environment.prefix=''", "its prompts are"),
        ("environment.extraction=last_fence", "expressions without marks"),
    ],
)
def test_a_warm_up_for_another_environment_is_noted(override: str, said: str) -> None:
    recipe = load_recipe(ROOT / "recipes" / "tiny.yaml", [override])
    assert said in warmup_note(recipe, micro())


@pytest.mark.process
def test_a_warm_up_for_other_problems_is_noted_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heldout = ["data.heldout=null", "evaluation.train_problems=0", f"out={tmp_path / 'run'}"]
    assert main(["train", "tiny", "--dry-run", "data.train=builtin:train", *heldout]) == 0
    note = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: the warm-up")]
    assert len(note) == 1
    assert "training problems are no micro-tasks" in note[0]
    assert "warmup.writes: demonstrations" in note[0]
    assert main(["train", "tiny", "--dry-run", *heldout]) == 0
    assert "note: the warm-up" not in capsys.readouterr().err
