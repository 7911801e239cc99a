"""The tour judges what it says it judges, trains in a folder of its own, and writes a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.cli.tour import (
    CHEATS,
    CORRECT,
    MARK,
    PROBLEM,
    WRONG,
    fresh_folder,
    judge_programs,
    reward_curve,
    sparkline,
)
from whetstone.core.errors import UserError
from whetstone.core.problem import Program
from whetstone.judge import Judge
from whetstone.run.recipe import load_recipe

SMALL = [
    "model.scratch.hidden_size=48",
    "model.scratch.layers=1",
    "model.scratch.intermediate_size=64",
    "warmup.steps=2",
    "warmup.batch_size=4",
    "trainer.steps=2",
    "trainer.prompts_per_step=2",
    "trainer.samples_per_prompt=2",
    "evaluation.n=1",
    "evaluation.k=[1]",
    "evaluation.train_problems=2",
    "data.heldout=null",
]


@pytest.mark.process
def test_only_the_correct_program_is_accepted() -> None:
    results = list(judge_programs())
    assert [each.candidate for each in results] == [CORRECT, WRONG, *CHEATS]
    assert [each.candidate.title for each in results if each.judgement.accepted] == [CORRECT.title]
    assert all(each.as_expected for each in results)
    assert all(each.reason for each in results[1:])


@pytest.mark.parametrize("tier", ["root", "userns", "restricted"])
def test_the_named_layer_is_the_one_that_stops_the_cheat(tier: str) -> None:
    signs = {
        "evidence": "ended before its function returned",
        "inert values": "got 0, expected 26",
        "comparison outside": "got None, expected 26",
        "seccomp": "Operation not permitted|Function not implemented",
        "namespaces": "Read-only file system",
        "Landlock": "Permission denied",
    }
    try:
        judge = Judge(1, tier=tier)
    except UserError as refused:
        pytest.skip(str(refused))
    with judge:
        for cheat in CHEATS:
            judgement = judge.judge(PROBLEM, Program("python", cheat.source))
            layer = cheat.stopped_by(judgement.isolation).partition(".")[0]
            assert re.search(signs[layer], judgement.cases[0].reason), (cheat.title, judgement)


@pytest.mark.process
def test_a_tour_tells_its_story_and_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tour"
    for _ in range(2):
        assert main(["tour", "--out", str(out), *SMALL]) == 0
        told = capsys.readouterr().out
        for part in (
            "-> accepted",
            "-> wrong_answer: got 57, expected 26",
            "stopped by evidence",
            "step    2/2",
        ):
            assert part in told
        assert "reward of each step:" in told
        assert str(out / "report.html") in told
        assert (out / "report.html").stat().st_size > 0


def test_a_tour_replaces_no_folder_but_its_own(tmp_path: Path) -> None:
    fresh_folder(tmp_path / "own")
    (tmp_path / "own" / "metrics.jsonl").write_text("{}\n")
    fresh_folder(tmp_path / "own")
    assert [path.name for path in (tmp_path / "own").iterdir()] == [MARK]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="--out"):
        fresh_folder(other)
    assert (other / "thesis.txt").read_text() == "years of work"


def test_a_folder_that_is_not_a_tours_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["tour", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert "--out" in told.err
    assert "accepted" not in told.out


def test_the_curve_goes_from_zero_to_the_largest_value() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert (
        reward_curve([0.2] * 5 + [0.6] * 5)
        == "▃▃▃▃▃█████\n    mean: 0.20 in the first 5 steps, 0.60 in the last"
    )
    assert reward_curve([]) == "no step had a reward"


def test_the_recipe_trains_the_model_of_tiny() -> None:
    tour, tiny = load_recipe("tour"), load_recipe("tiny")
    assert (tour.model, tour.environment, tour.algorithm, tour.sampling) == (
        tiny.model,
        tiny.environment,
        tiny.algorithm,
        tiny.sampling,
    )
