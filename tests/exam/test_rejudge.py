"""``whetstone rejudge``: stored rewards of runs and dumps against today's, with the real judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whetstone.cli.main import main
from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone.core.verdict import Verdict
from whetstone.data.files import write_problems
from whetstone.report.rollouts import RolloutWriter, StoredRollout
from whetstone_exam.rejudge.stored_replies import ProblemIndex

ADD = Problem("t/add", "Print the sum of two numbers.", StdinTests([StdinCase("1 2\n", "3\n")]))
MUL = Problem("t/mul", "Print the product of two numbers.", StdinTests([StdinCase("2 5\n", "10\n")]))
RIGHT = {
    "t/add": "```python\na, b = map(int, input().split())\nprint(a + b)\n```",
    "t/mul": "```python\na, b = map(int, input().split())\nprint(a * b)\n```",
}
WRONG = "```python\nprint(0)\n```"


@pytest.fixture
def problems(tmp_path: Path) -> str:
    path = tmp_path / "set.jsonl"
    write_problems(path, [ADD, MUL])
    return str(path)


def a_rollout(step: int, problem: str, reply: str, reward: float | None, **changes: Any) -> StoredRollout:
    verdict = Verdict.ACCEPTED if reward else Verdict.WRONG_ANSWER
    rollout = StoredRollout(step, problem, "prompt", reply, reply, verdict, "", reward, "stop", 5, 0, 0, [])
    return msgspec.structs.replace(rollout, **changes)


def a_run(
    folder: Path, problems: str, steps: dict[int, list[StoredRollout]], judge: str = "workers: 1"
) -> Path:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(f"data: {{train: {problems}}}\njudge: {{{judge}}}\n")
    writer = RolloutWriter(folder)
    for step, rollouts in steps.items():
        writer.write(step, rollouts)
    return folder


def rejudged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["rejudge", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


GROUPS = {
    1: [
        a_rollout(1, "t/add", RIGHT["t/add"], 1.0),
        a_rollout(1, "t/add", WRONG, 0.0),
        a_rollout(1, "t/mul", WRONG, 0.0),
        a_rollout(1, "t/mul", WRONG, 0.0),
    ],
    2: [a_rollout(2, "t/add", RIGHT["t/add"], 1.0), a_rollout(2, "t/add", WRONG, 0.0)],
}


@pytest.mark.process
def test_rewards_that_still_hold_change_nothing(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # The recipe's service need not run any more.
    run = a_run(tmp_path / "run", problems, GROUPS, "workers: 1, url: 'http://127.0.0.1:9', max_cases: 1")
    status, report = rejudged(capsys, str(run))
    assert status == 0
    assert (report["replies"], report["judged"], report["distinct"]) == (6, 6, 3)
    assert (report["changed"], report["flipped"], report["transitions"]) == (0, 0, {})
    assert report["mean"]["a"] == report["mean"]["b"]


@pytest.mark.process
def test_exactly_the_tampered_rewards_are_reported(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hack was rewarded, and the honest reply beside it was not; another group lost its only reward."""
    steps = {
        3: [
            a_rollout(3, "t/add", RIGHT["t/add"], 0.0),
            a_rollout(3, "t/add", "```python\nimport os\nos._exit(0)\n```", 1.0),
            a_rollout(3, "t/mul", WRONG, 1.0),
            a_rollout(3, "t/mul", WRONG + "\n", 0.0),
        ],
        4: [a_rollout(4, "t/mul", RIGHT["t/mul"], 1.0), a_rollout(4, "t/mul", WRONG, 0.0)],
    }
    out = tmp_path / "changed.jsonl"
    status, report = rejudged(capsys, str(a_run(tmp_path / "run", problems, steps)), "--out", str(out))
    assert status == 1
    assert report["transitions"] == {
        "wrong_answer -> accepted": 1,
        "accepted -> wrong_answer": 2,
    }
    assert (report["flipped"], report["groups"], report["signal_lost"], report["signal_gained"]) == (
        2,
        3,
        1,
        0,
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["step"], row["problem_id"], row["reward"], row["new_reward"]) for row in rows[:2]] == [
        (3, "t/add", 0.0, 1.0),
        (3, "t/add", 1.0, 0.0),
    ]
    assert {row["above"] * row["new_above"] for row in rows[:2]} == {-0.25}


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_another_judge_computes_the_rewards(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(a_run(tmp_path / "run", problems, GROUPS))
    in_process = "tests.exam.graders_under_test:in_process"
    assert rejudged(capsys, run, "--grader", in_process)[0] == 0
    status, report = rejudged(capsys, run, "--grader", "tests.exam.graders_under_test:rejects_all")
    assert status == 1
    assert report["transitions"] == {"accepted -> wrong_answer": 2}
    _, report = rejudged(capsys, run, "--grader", "tests.exam.graders_under_test:exit_status")
    assert (report["judged"], report["no_verdict"]) == (0, 6)
    assert main(["rejudge", run, "--python", "python3"]) == 2
    assert "--python is the interpreter of --grader" in capsys.readouterr().err


@pytest.mark.process
def test_replies_that_cannot_be_judged_again_are_counted_by_reason(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        1: [
            a_rollout(1, "t/add", RIGHT["t/add"], 1.0),
            a_rollout(1, "t/gone", RIGHT["t/add"], 1.0),
            a_rollout(1, "t/add", RIGHT["t/add"], 1.0, dialogue=[("user", "again")]),
            a_rollout(1, "t/add", "", None, finish_reason="abort", verdict=None),
        ]
    }
    status, report = rejudged(capsys, str(a_run(tmp_path / "run", problems, steps)))
    assert status == 0
    assert report["judged"] == 1
    assert set(report["skipped"].values()) == {1}
    assert len(report["skipped"]) == 3


@pytest.mark.process
def test_steps_and_groups_can_be_chosen(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(a_run(tmp_path / "run", problems, GROUPS))
    assert rejudged(capsys, run, "--steps", "2")[1]["replies"] == 2
    assert rejudged(capsys, run, "--steps", "2:")[1]["replies"] == 2
    assert rejudged(capsys, run, "--sample", "2")[1]["groups"] == 2
    assert main(["rejudge", run, "--steps", "7:9"]) == 2
    assert "the stored steps are 1 to 2" in capsys.readouterr().err
    assert main(["rejudge", run, "--steps", "x"]) == 2
    assert "give one step, or a range" in capsys.readouterr().err


@pytest.mark.process
def test_a_dump_of_trl_is_read_with_its_only_or_named_reward(
    tmp_path: Path, problems: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [[{"role": "user", "content": f"Solve this.\n\n{p.statement}"}] for p in (ADD, ADD, MUL, MUL)]
    replies = [RIGHT["t/add"], WRONG, RIGHT["t/mul"], WRONG]
    table = {
        "step": [5] * 4,
        "prompt": prompts,
        "completion": [[{"role": "assistant", "content": reply}] for reply in replies],
        "reward": [1.0, 0.0, 0.0, float("nan")],
        "advantage": [0.5, -0.5, 0.0, 0.0],
    }
    folder = tmp_path / "trl" / "completions"
    folder.mkdir(parents=True)
    pq.write_table(pa.table(table), folder / "completions_00005.parquet")
    status, report = rejudged(capsys, str(tmp_path / "trl"), "--problems", problems)
    assert status == 1
    assert report["transitions"] == {
        "reward 0 -> accepted": 1,
        "no reward -> wrong_answer": 1,
    }
    pq.write_table(pa.table(table | {"length": [1.0] * 4}), folder / "completions_00005.parquet")
    assert main(["rejudge", str(tmp_path / "trl"), "--problems", problems]) == 2
    assert "choose one with --reward-column" in capsys.readouterr().err
    status, report = rejudged(
        capsys, str(tmp_path / "trl"), "--problems", problems, "--reward-column", "reward"
    )
    assert report["judged"] == 4


@pytest.mark.process
def test_a_dump_of_verl_needs_no_problem_file_if_it_has_whole_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = msgspec.json.encode(ADD).decode()
    rows = [
        {"input": "p", "output": RIGHT["t/add"], "gts": truth, "score": 1.0, "step": 2},
        {"input": "p", "output": WRONG, "gts": truth, "score": 1.0, "step": 2},
        {"input": "q", "output": WRONG, "gts": "3", "score": 1.0, "step": 2},
    ]
    (tmp_path / "2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["rejudge", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "not judged again: 1 (no single problem found" in text
    assert "reward 1 -> wrong_answer" in text
    (tmp_path / "2.jsonl").write_text('{"input": "p"}\n')
    assert main(["rejudge", str(tmp_path)]) == 2
    assert "line 1 has no field 'output'" in capsys.readouterr().err


def test_the_longest_statement_in_a_prompt_names_the_problem() -> None:
    longer = Problem(
        "t/longer", ADD.statement + " Then print it again.", ADD.tests, references=[Program("python", "")]
    )
    index = ProblemIndex([ADD, longer])
    found = index.of_row(None, f"Task: {longer.statement}")
    assert found is not None
    assert found.id == "t/longer"
    assert index.of_row(None, "another task") is None


def test_a_folder_without_replies_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rejudge", str(tmp_path)]) == 2
    assert "no stored replies; give the folder of a Whetstone run" in capsys.readouterr().err
