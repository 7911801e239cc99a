"""Rollouts come back as they were sampled, and are cut with the metrics on resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.report.batch import batch_metrics, repetition
from whetstone.report.rollouts import RolloutWriter, read_rollouts, rollout_steps, rollouts_from

ACCEPTED = Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED, 0.25, 0.5, 123, "")], 1.0, "root")
WRONG = Judgement(
    Verdict.WRONG_ANSWER, [CaseJudgement(Verdict.WRONG_ANSWER, reason="3 is not 4")], 0.0, "root"
)
FAILED = Judgement(Verdict.JUDGE_ERROR, [], None, "root", "worker died")


def sample(judgement: Judgement | None, reward: float | None, length: int = 2, text: str = "reply") -> Sample:
    return Sample(
        response_ids=[1] * length,
        logprobs=[-1.0] * length,
        versions=list(range(4, 4 + length)),
        finish_reason="length" if length > 5 else "stop",
        text=text,
        program=None if judgement is None else text,
        judgement=judgement,
        reward=reward,
        accepted=None if judgement is None or judgement.score is None else judgement.accepted,
    )


@given(st.text(), st.text(), st.sampled_from([ACCEPTED, WRONG, FAILED, None]))
def test_rollouts_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, prompt: str, reply: str, judgement: Judgement | None
) -> None:
    folder = tmp_path_factory.mktemp("run")
    group = Group("p", [1], [sample(judgement, None, text=reply), sample(WRONG, 0.0, length=0)])
    rollouts = rollouts_from(3, [group], lambda ids: prompt)
    RolloutWriter(folder).write(3, rollouts)
    read = read_rollouts(folder, 3)
    assert read == rollouts
    assert (read[0].version_min, read[0].version_max) == (4, 5)
    assert (read[1].version_min, read[1].tokens) == (None, 0)


def test_half_a_surrogate_pair_does_not_stop_a_run(tmp_path: Path) -> None:
    broken = CaseJudgement(Verdict.WRONG_ANSWER, reason="got '\udc00'")
    judgement = Judgement(Verdict.WRONG_ANSWER, [broken], 0.0, "root")
    RolloutWriter(tmp_path).write(
        1, rollouts_from(1, [Group("p", [1], [sample(judgement, 0.0, text="a\ud800b")])], str)
    )
    (read,) = read_rollouts(tmp_path, 1)
    assert read.reply == "a\ufffdb"
    assert read.cases[0].reason == "got '\ufffd'"


def test_resuming_deletes_later_steps_and_ignores_unfinished_files(tmp_path: Path) -> None:
    writer = RolloutWriter(tmp_path)
    for step in (1, 2, 10):
        writer.write(step, rollouts_from(step, [Group("p", [1], [sample(WRONG, 0.0)])], str))
    (writer.folder / "step-000011.parquet.tmp").write_bytes(b"half")
    assert rollout_steps(tmp_path) == [1, 2, 10]
    assert writer.truncate_after(2) == 1
    assert rollout_steps(tmp_path) == [1, 2]
    (writer.folder / "step-000002.parquet").write_bytes(b"garbage")
    with pytest.raises(UserError, match=r"step-000002.parquet: cannot be read"):
        read_rollouts(tmp_path, 2)


def test_step_statistics_leave_out_replies_without_reward() -> None:
    mixed = Group("a", [1], [sample(ACCEPTED, 1.0), sample(WRONG, 0.0, length=6), sample(FAILED, None)])
    same = Group("b", [1], [sample(WRONG, 0.0), sample(None, None)])
    numbers = batch_metrics([mixed, same], Batch([mixed], {"zero_variance": 1}))
    assert numbers["reward/mean"] == pytest.approx(1 / 3)
    assert numbers["reward/std"] == pytest.approx((2 / 9) ** 0.5)
    assert numbers["reward/pass_rate"] == pytest.approx(1 / 3)
    assert numbers["sample/unscored"] == 2
    assert (numbers["verdict/wrong_answer"], numbers["verdict/judge_error"]) == (2, 1)
    assert (numbers["length/max"], numbers["length/truncated"]) == (6, pytest.approx(1 / 5))
    assert (numbers["group/sampled"], numbers["group/trained"], numbers["group/zero_variance"]) == (2, 1, 1)
    assert numbers["dropped/zero_variance"] == 1
    forgeable = Judgement(Verdict.ACCEPTED, ACCEPTED.cases, None, "root", shared_interpreter=True)
    [unpaid] = [batch_metrics([Group("d", [1], [sample(forgeable, None), sample(WRONG, 0.0)])], Batch([]))]
    assert (unpaid["sample/unscored"], unpaid["sample/shared_interpreter"]) == (1, 1)
    assert unpaid["reward/pass_rate"] == 0.0
    assert "reward/mean" not in batch_metrics([Group("c", [1], [sample(FAILED, None)])], Batch([]))


def test_rewards_are_shown_by_source_where_problems_come_from_several() -> None:
    apps = Group(
        "a", [1], [sample(ACCEPTED, 1.0), sample(WRONG, 0.0), sample(FAILED, None)], {"source": "apps"}
    )
    taco = Group("b", [1], [sample(ACCEPTED, 1.0)], {"source": "taco"})
    lost = Group("c", [1], [sample(FAILED, None)], {"source": "lost"})
    numbers = batch_metrics([apps, taco, taco, lost], Batch([]))
    by_source = {key: value for key, value in numbers.items() if key.startswith("reward/source/")}
    assert by_source == {"reward/source/apps": 0.5, "reward/source/taco": 1.0}
    assert not any(key.startswith("reward/source/") for key in batch_metrics([apps, apps], Batch([])))


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 5))
def test_repetition_is_the_share_of_spans_seen_before(ids: list[int], span: int) -> None:
    spans = [tuple(ids[i : i + span]) for i in range(len(ids) - span + 1)]
    expected = 1 - len(set(spans)) / len(spans) if spans else 0.0
    assert repetition(ids, span) == pytest.approx(expected)


def test_a_reply_that_goes_in_circles_is_nearly_all_repetition() -> None:
    assert repetition([4, 5, 6] * 200) > 0.99
    assert repetition(list(range(600))) == 0.0
