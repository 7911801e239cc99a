"""A person counts cases from 1, on every face. Fields for machines keep the index, which begins at 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.command import whetstone_data
from whetstone import Judge, Program, Verdict
from whetstone.cli.main import main
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.data.files import write_problems
from whetstone.integrations.rewards import ScoredReply
from whetstone.report.reply_rows import case_rows

pytestmark = pytest.mark.process

# Right in all cases but the second of three, whose index is 1.
SOURCE = "n = int(input())\nprint(n + (n == 5))\n"
PROBLEM = Problem(
    "demo/same",
    "Print the number.",
    StdinTests([StdinCase(f"{n}\n", f"{n}\n") for n in (4, 5, 6)]),
    references=[Program("python", SOURCE)],
)


def test_the_second_case_is_case_2_wherever_a_person_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Judge(workers=1) as judge:
        judgement = judge.judge(PROBLEM, Program("python", SOURCE))
    assert [case.index for case in judgement.cases if case.verdict is not Verdict.ACCEPTED] == [1]
    assert [row["case"] for row in case_rows(judgement.cases, str) if row["verdict"] != "accepted"] == [2]
    reply = ScoredReply(PROBLEM, 0.0, judgement, SOURCE)
    assert reply.explanation == "wrong_answer: Tests: 2 passed, 1 failed. Test 2: wrong answer."

    file, program = tmp_path / "p.jsonl", tmp_path / "a.py"
    write_problems(file, [PROBLEM])
    program.write_text(SOURCE)
    assert main(["judge", "one", str(file), str(program)]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "  wrong_answer " in line]
    assert line.split()[0] == "2"
    assert main(["judge", "one", str(file), str(program), "--json"]) == 1
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["index"] for case in cases if case["verdict"] != "accepted"] == [1]

    assert whetstone_data("show", str(file), "--id", "demo/same") == 0
    rows = [line.strip("│┃ ").split("│") for line in capsys.readouterr().out.splitlines()]
    assert [row[0].strip() for row in rows if len(row) == 3] == ["1", "2", "3"]

    assert whetstone_data("validate", str(file), "--workers", "1", "--mutants", "0") == 1
    assert "wrong_answer, case 2: " in capsys.readouterr().out
    kept = tmp_path / "kept"
    whetstone_data("validate", str(file), "--workers", "1", "--mutants", "0", "--out", str(kept))
    cards = [path.read_text() for path in kept.glob("card*")]
    assert any("case 2" in card for card in cards)
    assert not any("case 1" in card for card in cards)
