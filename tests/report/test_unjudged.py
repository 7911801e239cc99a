"""Runs and evaluations of an environment without a judge: metrics, rollout files, and pages of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.report.test_page import charts_of, data_of, page_of
from whetstone.cli.main import main
from whetstone.core.problem import NoTests, Problem
from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.evaluate.folder import EvaluationFolder
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import SampleResult
from whetstone.evaluate.tally import Tally
from whetstone.report.batch import batch_metrics
from whetstone.report.metrics import MetricsWriter
from whetstone.report.rollout_index import RolloutIndex
from whetstone.report.rollouts import RolloutWriter, read_rollouts, rollouts_from
from whetstone.report.run_data import read_run, result_of
from whetstone.report.signs import Signs
from whetstone.report.view.library import Roles, state_of
from whetstone.run.display import results_table

ACCEPTED = Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED)], 1.0, "root")
GAME = [("assistant", "I say 5."), ("user", "Higher."), ("tool", "7"), ("assistant", "I say 7.")]


def sample(
    reward: float | None,
    accepted: bool | None = None,
    *,
    judgement: Judgement | None = None,
    program: str | None = None,
    dialogue: list[tuple[str, str]] | None = None,
    metrics: dict[str, float] | None = None,
    end: Any = "stop",
) -> Sample:
    said = dialogue or []
    return Sample(
        response_ids=[1, 2, 3],
        logprobs=[-1.0] * 3,
        versions=[0] * 3,
        finish_reason=end,
        text="\n\n".join(text for _, text in said) or "42",
        program=program,
        judgement=judgement,
        reward=reward,
        accepted=accepted,
        metrics=metrics or {},
        dialogue=said,
    )


def metrics_of(*samples: Sample) -> dict[str, float]:
    group = Group("p", [1], list(samples))
    return batch_metrics([group], Batch([group]))


def evaluate(folder: Path, rewards: dict[str, list[float]], accepted: bool | None = None) -> Tally:
    """Write an evaluation of replies with these rewards to each problem, whose last one took three turns."""
    n = len(next(iter(rewards.values())))
    tally = Tally(SamplingPlan(n=n))
    with EvaluationFolder(folder, {}) as kept:
        for name, values in rewards.items():
            tally.expect(Problem(name, name, NoTests()))
            for index, value in enumerate(values):
                last = index == n - 1
                found = SampleResult(
                    *(name, index, "text", None, None, "stop", 3),
                    accepted=accepted,
                    reward=value,
                    turns=3 if last else 1,
                    dialogue=GAME if last else [],
                    metrics={"moves": value},
                )
                kept.add(found)
                tally.add(found)
        kept.finish(tally.evaluation({}))
    return tally


def write_run(folder: Path) -> Path:
    """Write a run of two steps whose environment gives rewards only, with evaluations before and after."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text("name: game\ntrainer: {steps: 2}\n")
    rollouts = RolloutWriter(folder)
    with MetricsWriter(folder / "metrics.jsonl") as metrics:
        for step, rewards in ((0, [2.0, 4.0]), (1, []), (2, [3.0, 7.0])):
            if step:
                group = Group("p", [1], [sample(step, dialogue=GAME), sample(-1.0), sample(None)])
                rollouts.write(step, rollouts_from(step, [group], str))
                metrics.write(
                    {"step": step, "kind": "train", "time": {}} | batch_metrics([group], Batch([group]))
                )
            if rewards:
                values = {f"q/{number}": [value, value] for number, value in enumerate(rewards)}
                place = folder / "evaluations" / f"step-{step}-heldout"
                evaluation = evaluate(place, values).evaluation({})
                metrics.write({"step": step, "kind": "eval", "time": {}} | evaluation.metrics("heldout"))
    return folder


def test_shares_are_over_the_replies_that_have_a_verdict() -> None:
    numbers = metrics_of(
        sample(1.0, True, judgement=ACCEPTED),
        sample(0.0, False),
        sample(5.0),
        sample(None, True),
        sample(None),
    )
    assert numbers["reward/pass_rate"] == 0.5
    assert numbers["reward/mean"] == 2.0
    assert sum(numbers[f"verdict/{verdict.value}"] for verdict in Verdict) == 1
    assert numbers["sample/unscored"] == 2
    alone = metrics_of(sample(0.25), sample(0.75))
    assert not any(key.startswith("verdict/") or key == "reward/pass_rate" for key in alone)


def test_turns_are_counted_where_there_are_several_unless_the_environment_counts_them() -> None:
    assert metrics_of(sample(1.0, dialogue=GAME), sample(1.0))["episode/turns"] == 1.5
    assert "episode/turns" not in metrics_of(sample(1.0), sample(0.0))
    own = metrics_of(sample(1.0, dialogue=GAME, metrics={"turns": 7.0}), sample(1.0))
    assert own["episode/turns"] == 7.0


def test_rollouts_keep_their_turns_and_name_their_result(tmp_path: Path) -> None:
    group = Group(
        "p",
        [1],
        [
            *(sample(1.0, dialogue=[*GAME, ("user", "half \ud800")]), sample(1.0, True), sample(0.0, False)),
            *(sample(0.3), sample(None), sample(None, end="abort"), sample(1.0, True, judgement=ACCEPTED)),
        ],
    )
    RolloutWriter(tmp_path).write(1, rollouts_from(1, [group], str))
    read = read_rollouts(tmp_path, 1)
    assert read[0].dialogue == [*GAME, ("user", "half \ufffd")]
    words = ["rewarded", "solved", "not_solved", "rewarded", "no_result", "failed", "accepted"]
    assert [row.word for row in read] == words
    assert [row.verdict for row in RolloutIndex(tmp_path).all()] == words


def test_rollouts_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    rollouts = RolloutWriter(tmp_path)
    rows = rollouts_from(
        1, [Group("p", [1], [sample(1.0, True, judgement=ACCEPTED, program="print(1)")])], str
    )
    path = rollouts.write(1, rows)
    pq.write_table(pq.read_table(path).drop_columns(["accepted", "dialogue"]), path)
    [read] = read_rollouts(tmp_path, 1)
    assert (read.accepted, read.dialogue, read.word) == (None, [], "accepted")
    assert [row.verdict for row in RolloutIndex(tmp_path).all()] == ["accepted"]
    assert Signs(tmp_path).summary()["shortest"]["count"] == 1


def test_the_page_of_a_run_shows_rewards_turns_and_no_verdicts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    page = page_of(run)
    panels = {panel["title"]: panel for panel in data_of(page)["page"]["panels"]}
    assert list(panels)[:4] == ["Reward", "Reward of evaluations", "Learning signal", "Reply length"]
    charts = charts_of(page)
    [line] = charts["evaluated"]["series"]
    assert (line["label"], line["values"]) == ("held-out", [3.0, 5.0])
    assert charts["eval/heldout/turns"]["series"][0]["values"] == [2.0, 2.0]
    assert charts["episode/turns"]["series"][0]["values"] == pytest.approx([4 / 3, 4 / 3], abs=1e-5)
    assert charts["sample/unscored"]["series"][0]["values"] == [1.0, 1.0]
    assert "pass" not in charts
    first = data_of(page)["rows"][0]
    assert [tuple(turn) for turn in first["dialogue"]] == GAME
    assert (first["verdict"], first["reason"], first["program"]) == ("rewarded", "", None)


def test_the_result_of_a_run_is_the_paired_change_of_the_reward(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    [one] = result_of(run)["evaluations"]
    assert (one["set"], one["estimate"]) == ("heldout", "reward")
    assert (one["before"]["value"], one["after"]["value"], one["change"]["value"]) == (3.0, 5.0, 2.0)
    # Differences 1 and 3: their deviation is the root of 2, and Student's quantile for one degree is 12.7062.
    assert one["change"]["low"] == pytest.approx(2 - 12.7062, abs=1e-3)
    table = results_table(run.evals[0], run.evals[-1], run.changes)
    assert list(table.columns[0].cells) == ["held-out, reward"]
    assert str(table.title).startswith("mean rewards")
    state = state_of(run.folder, [*run.train, *run.evals], run.recipe, Roles(lambda folder: []))
    assert state.heldout == ("reward", 5.0)


def test_an_evaluation_of_rewards_is_shown_and_compared_by_reward(tmp_path: Path) -> None:
    evaluate(tmp_path / "a" / "game", {"q/1": [0.0, 1.0], "q/2": [2.0, 2.0]})
    evaluate(tmp_path / "b" / "game", {"q/1": [3.0, 4.0], "q/2": [2.0, 2.0]})
    out = tmp_path / "one.html"
    assert main(["report", str(tmp_path / "a"), "--out", str(out)]) == 0
    found = data_of(out.read_text())
    (results,) = found["page"]["results"]
    assert results["rows"][0][:2] == ["reward", "1.250"]
    assert "in 2.0 turns" in results["notes"][0]
    assert "moves 1.250" in results["notes"][0]
    assert "without code" not in results["notes"][0]
    first = found["rows"][0]
    assert (first["outcome"], first["verdicts"]) == ("rewarded", ["rewarded"])
    (side,) = first["sides"]
    assert (side["right"], side["n"], side["reward"]) == (None, 2, 0.5)
    single, played = side["replies"]
    assert (single["verdict"], single["reward"], single["dialogue"]) == ("rewarded", 0.0, [])
    assert [tuple(turn) for turn in played["dialogue"]] == GAME
    compared = tmp_path / "two.html"
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(compared)]) == 0
    both = data_of(compared.read_text())
    assert [row["outcome"] for row in both["rows"]] == ["gained", "equal"]
    assert both["page"]["results"][0]["rows"][0][:4] == ["reward", "1.250", "2.750", "+1.500"]


def test_what_the_environment_accepts_is_right_without_a_verdict(tmp_path: Path) -> None:
    evaluate(tmp_path / "game", {"q/1": [1.0, 1.0]}, accepted=True)
    out = tmp_path / "one.html"
    assert main(["report", str(tmp_path / "game"), "--out", str(out)]) == 0
    found = data_of(out.read_text())
    assert [row[:2] for row in found["page"]["results"][0]["rows"]] == [["pass@1 (avg@2)", "100.0%"]]
    (row,) = found["rows"]
    assert (row["outcome"], row["verdicts"], row["sides"][0]["right"]) == ("always right", ["solved"], 2)
    assert json.loads((tmp_path / "game" / "evaluation.json").read_text())["reward"] is None


def test_accepted_programs_without_a_verdict_are_searched_for_signs(tmp_path: Path) -> None:
    group = Group("p", [1], [sample(1.0, True, program="print(42)"), sample(0.0, False, program="x")])
    RolloutWriter(tmp_path).write(1, rollouts_from(1, [group], str))
    found = Signs(tmp_path).summary()
    assert [found[name]["count"] for name in ("shortest", "constant")] == [1, 1]
