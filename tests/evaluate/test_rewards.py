"""Evaluations of environments that give rewards: their mean, pass@k only where something decides, turns."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from whetstone.core.errors import UserError
from whetstone.core.problem import NoTests, Problem
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import (
    Evaluation,
    SampleResult,
    headline_key,
    load_evaluation,
    paired_differences,
    read_pass_rates,
)
from whetstone.evaluate.tables import print_comparison, print_evaluation
from whetstone.evaluate.tally import Tally

WRONG = Judgement(Verdict.WRONG_ANSWER, [], 0.0, "none")
# Of 2, 4 and 6: their deviation is 2, and Student's quantile for 2 degrees of freedom is 4.30265.
HALF = 4.30265 * 2 / 3**0.5
FAILED_JUDGE = Judgement(Verdict.JUDGE_ERROR, [], None, "none", "the worker died")


def problem(name: str, **meta: str) -> Problem:
    return Problem(name, f"about {name}", NoTests(), meta=dict(meta))


def reply(name: str, index: int = 0, *, judgement: Judgement | None = None, **fields: Any) -> SampleResult:
    return SampleResult(name, index, "text", None, judgement, fields.pop("finish", "stop"), 3, **fields)


def tally_of(problems: Iterable[Problem], replies: Iterable[SampleResult], n: int = 1) -> Tally:
    tally = Tally(SamplingPlan(n=n, k=(1, n)))
    for one in problems:
        tally.expect(one)
    for one in replies:
        tally.add(one)
    return tally


def evaluation_of(replies: Sequence[SampleResult], n: int = 1, **manifest: Any) -> Evaluation:
    names = dict.fromkeys(one.problem_id for one in replies)
    return tally_of(map(problem, names), replies, n).evaluation(manifest)


def rewards(*values: float | None, **fields: Any) -> list[SampleResult]:
    """One reply to each of as many problems."""
    return [reply(f"p{number:02}", reward=value, **fields) for number, value in enumerate(values)]


def printed(evaluation: Evaluation) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    print_evaluation("set", evaluation, console)
    return console.export_text()


def test_rewards_alone_give_the_mean_reward_and_no_pass_at_k() -> None:
    # Three of twenty: the bounds are Clopper and Pearson's, from scipy.
    found = evaluation_of(rewards(*[1.0] * 3, *[0.0] * 17))
    assert (found.pass_at, found.shares.verdicts) == ({}, {})
    name, estimate = found.headline
    assert (name, estimate.value, estimate.problems) == ("reward", pytest.approx(0.15), 20)
    assert (estimate.low, estimate.high) == pytest.approx((0.03207094, 0.37892683), abs=2e-6)
    numbers = found.metrics("heldout")
    assert numbers["eval/heldout/reward"] == pytest.approx(0.15)
    assert numbers["eval/heldout/reward_low"] == estimate.low
    assert numbers["eval/heldout/reward_high"] == estimate.high
    assert (numbers["eval/heldout/judge_error"], numbers["eval/heldout/failed"]) == (0.0, 0.0)
    assert not any("pass@" in key for key in numbers)
    assert headline_key(numbers, "heldout") == "eval/heldout/reward"


def test_rewards_outside_of_0_to_1_have_students_interval_over_the_problems_means() -> None:
    replies = [reply("a", 0, reward=1.0), reply("a", 1, reward=3.0)]
    replies += [reply("b", 0, reward=4.0), reply("b", 1, reward=4.0)]
    replies += [reply("c", 0, reward=9.0), reply("c", 1, reward=3.0)]
    estimate = evaluation_of(replies, n=2).reward
    assert estimate is not None
    assert (estimate.value, estimate.problems) == (4.0, 3)
    # The problems' means are 2, 4 and 6.
    assert (estimate.low, estimate.high) == pytest.approx((4 - HALF, 4 + HALF), abs=1e-4)


def test_pass_at_k_counts_replies_accepted_by_the_environment() -> None:
    replies = [reply("a", 0, reward=0.9, accepted=True), reply("a", 1, reward=0.2, accepted=False)]
    replies += [reply("b", 0, reward=0.4, accepted=False), reply("b", 1, reward=0.4, accepted=False)]
    found = evaluation_of(replies, n=2)
    assert {k: one.value for k, one in found.pass_at.items()} == {1: 0.25, 2: 0.5}
    assert found.reward is not None
    assert found.reward.value == pytest.approx((0.55 + 0.4) / 2)
    assert found.headline[0] == "pass@1"
    assert list(found.estimates) == ["pass@1", "pass@2", "reward"]
    numbers = found.metrics("x")
    assert (numbers["eval/x/pass@1"], headline_key(numbers, "x")) == (0.25, "eval/x/pass@1")


def test_a_reward_that_is_the_same_number_as_pass_at_1_is_not_reported_twice() -> None:
    same = [reply("a", reward=1.0, accepted=True), reply("b", reward=0.0, accepted=False)]
    lost = reply("c", finish="failed", error="gone")
    assert evaluation_of([*same, lost]).reward is None
    judged = reply("c", judgement=WRONG, accepted=False, reward=-1.0)
    found = evaluation_of([*same, judged])
    assert found.reward is not None
    assert found.reward.value == 0.0


def test_the_environment_overrules_the_judge() -> None:
    accepted = Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED)], 1.0, "none")
    overruled = reply("a", judgement=accepted, accepted=False)
    assert (overruled.solved, reply("a", judgement=accepted).solved) == (False, True)
    assert evaluation_of([overruled]).pass_at[1].value == 0.0


def test_a_reply_without_a_judgement_is_a_failure_only_if_it_failed() -> None:
    replies = [
        reply("a", 0, reward=0.5),
        reply("a", 1, finish="failed", error="no answer", reward=9.0, accepted=True),
        reply("a", 2),
        reply("a", 3, judgement=FAILED_JUDGE),
        reply("b", 0, reward=1.5),
        reply("b", 1, reward=2.5),
        *(reply("b", index, finish="failed", error="no answer") for index in (2, 3)),
        *(reply("c", index) for index in range(4)),
    ]
    found = evaluation_of(replies, n=4)
    counts = [(p.correct, p.judge_errors, p.failed, p.undecided, p.reward) for p in found.problems]
    assert counts == [(0, 2, 1, 1, 0.5), (0, 0, 2, 2, 2.0), (0, 4, 0, 0, None)]
    assert found.reward is not None
    assert (found.reward.value, found.reward.problems) == (1.25, 2)
    assert (found.shares.failed, found.shares.judge_error) == (3 / 12, 6 / 12)
    text = printed(found)
    assert (
        "25.0% of the replies could not be had and are not in the mean, such as one to a: no answer" in text
    )
    assert "50.0% of the replies could not be judged and are not in the mean, such as one to a" in text


def test_verdicts_are_counted_over_judged_replies_only() -> None:
    replies = [
        reply("a", 0, judgement=WRONG, accepted=False, reward=0.0),
        reply("a", 1, accepted=True, reward=1.0),
        reply("a", 2, reward=0.7),
        reply("a", 3, reward=0.3),
    ]
    found = evaluation_of(replies, n=4)
    assert found.shares.verdicts == {"wrong_answer": 1}
    assert found.shares.judge_error == 0.0
    assert found.pass_at[1].value == 0.25
    assert (found.problems[0].undecided, found.problems[0].reward) == (2, 0.5)
    assert found.reward is not None
    assert found.reward.value == 0.5


def test_without_any_result_the_error_names_the_fields_to_set() -> None:
    with pytest.raises(UserError, match="an environment must set the reward, or `accepted`"):
        evaluation_of(rewards(None, None))
    with pytest.raises(UserError, match="whetstone doctor"):
        evaluation_of([reply("a", judgement=FAILED_JUDGE), reply("b")])
    with pytest.raises(UserError, match=r"p00.*reward nan.*a finite number, or None"):
        evaluation_of(rewards(float("nan")))


def test_turns_and_metrics_are_means_over_the_episodes_that_have_them() -> None:
    replies = rewards(0.0, 0.0, 1.0, turns=1)
    long = [reply("z", reward=1.0, turns=5, metrics={"moves": 8.0, "[b]": 1.0}), reply("y", reward=0.0)]
    lost = reply("x", finish="failed", metrics={"moves": 99.0}, turns=9)
    found = evaluation_of([*replies, *long, lost])
    numbers = found.metrics("s")
    assert numbers["eval/s/turns"] == (1 + 1 + 1 + 5 + 1) / 5
    assert numbers["eval/s/episode/moves"] == 8.0
    assert "in 1.8 turns" in printed(found)
    assert "[b] 1.000, moves 8.000" in printed(found)
    assert "eval/s/turns" not in evaluation_of(replies).metrics("s")


def test_the_result_does_not_depend_on_the_order_of_the_replies() -> None:
    rng = random.Random(3)
    replies = [
        reply(f"p{number % 7}", number // 7, reward=rng.uniform(-1, 1), metrics={"x": rng.random()})
        for number in range(70)
    ]
    problems = [problem(f"p{number}") for number in range(7)]
    first = tally_of(problems, replies, n=10).evaluation({})
    for _ in range(5):
        rng.shuffle(replies)
        assert tally_of(problems, replies, n=10).evaluation({}) == first


def test_tables_show_the_mean_reward_of_each_label() -> None:
    problems = [
        problem("a", difficulty="easy"),
        problem("b", difficulty="hard"),
        problem("c", difficulty="new"),
    ]
    tally = tally_of(problems, [reply("a", reward=3.0), reply("b", reward=0.25), reply("c")])
    found = tally.evaluation({})
    rows = found.tables["difficulty"]
    assert [(row.name, row.pass_1, row.estimate.value) for row in rows] == [
        ("easy", None, 3.0),
        ("hard", None, 0.25),
    ]
    assert "0.250" in printed(found)
    assert "%" not in printed(found).partition("95% interval")[0]


def test_progress_shows_the_reward_until_something_is_decided() -> None:
    tally = tally_of([problem("a"), problem("b")], [reply("a", reward=0.5)])
    so_far = tally.so_far()
    assert so_far is not None
    assert (so_far[0], so_far[1].value, tally.note) == ("reward", 0.5, "reward 0.500")
    tally.add(reply("b", reward=1.0, accepted=True))
    so_far = tally.so_far()
    assert so_far is not None
    assert (so_far[0], so_far[1].value, tally.note) == ("pass@1", 0.5, "accepted 0.500")
    assert Tally(SamplingPlan()).so_far() is None


def test_saved_rewards_load_equal_and_replies_without_a_result_are_asked_again(tmp_path: Path) -> None:
    kept = [
        reply("a", 0, reward=0.5, turns=2, metrics={"m": 1.0}, dialogue=[("assistant", "x"), ("tool", "y")]),
        reply("a", 1, accepted=False),
    ]
    with EvaluationFolder(tmp_path, {"seed": 1}) as folder:
        for one in (*kept, reply("a", 2), reply("a", 3, finish="failed", reward=1.0)):
            folder.add(one)
    with EvaluationFolder(tmp_path, {"seed": 1}) as folder:
        assert list(folder.finished()) == kept
        result = evaluation_of(kept, n=2, seed=1)
        folder.finish(result)
    assert load_evaluation(tmp_path) == result
    assert list(read_samples(tmp_path)) == kept


def test_rewards_are_compared_problem_by_problem(tmp_path: Path) -> None:
    old, new = evaluation_of(rewards(1.0, 5.0, 0.0)), evaluation_of(rewards(3.0, 5.0, 4.0))
    [(name, found)] = paired_differences(old, new).items()
    assert (name, found.value, found.better, found.equal) == ("reward", 2.0, 2, 1)
    assert (found.low, found.high) == pytest.approx((2 - HALF, 2 + HALF), abs=1e-4)
    for side, result in (("old", old), ("new", new)):
        result.save(tmp_path / side)
    console = Console(record=True, width=160, file=io.StringIO())
    print_comparison(str(tmp_path / "old"), str(tmp_path / "new"), console, list_problems=True)
    text = console.export_text()
    assert "+2.000" in text
    assert "gained  p00  1.000, then 3.000" in text
    decided = evaluation_of(rewards(1.0, 0.0, 1.0, accepted=True))
    assert decided.headline[0] == "pass@1"
    evaluation_of([reply("p00", accepted=True)]).save(tmp_path / "passes")
    with pytest.raises(UserError, match="no result in common"):
        print_comparison(str(tmp_path / "old"), str(tmp_path / "passes"), console)


def test_pass_rates_need_to_know_which_replies_solved_their_problem(tmp_path: Path) -> None:
    evaluation_of(rewards(1.0, 0.0)).save(tmp_path / "rewards")
    with pytest.raises(UserError, match=r"rewards only.*`accepted`"):
        read_pass_rates(tmp_path / "rewards")
    replies = [reply("a", 0, accepted=True), reply("a", 1, reward=0.2), reply("a", 2, accepted=False)]
    evaluation_of(replies, n=3).save(tmp_path / "some")
    rate = read_pass_rates(tmp_path / "some").by_id["a"]
    assert (rate.n, rate.passed) == (2, 1)
