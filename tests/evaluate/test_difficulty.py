"""``whetstone data difficulty``: pass rates measured by an evaluation, or taken from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Problem
from whetstone.data.dataset import open_problems
from whetstone.data.decisions import read_decisions
from whetstone.data.files import write_problems
from whetstone.data.pass_rate import PassRate, rate_of
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import Evaluation, ProblemResult, Shares, read_pass_rates

NOTHING = Shares(0, {}, 0.0, 0.0, 0.0, 0.0, 0.0)


def evaluation(folder: Path, problems: list[ProblemResult], n: int = 8) -> None:
    found = Evaluation(SamplingPlan(n=n), problems, {}, NOTHING, {}, {"model": {"source": "models/tiny"}})
    found.save(folder)


def problem(id: str) -> Problem:
    return Problem(id, f"Return {id}.", CallTests([CallCase(1)], "f"), source="s")


def test_an_evaluation_gives_rates_of_judged_replies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        ProblemResult("some", 8, 3),
        ProblemResult("never", 8, 0),
        ProblemResult("always", 8, 8),
        # Six of eight were judged, and all of these are right: nothing says that it is ever not solved.
        ProblemResult("judge failed twice", 8, 6, judge_errors=2),
        ProblemResult("never asked", 8, 0, failed=8),
    ]
    evaluation(tmp_path / "eval" / "problems", results)
    write_problems(tmp_path / "set.jsonl", [problem(r.id) for r in results] + [problem("not in it")])
    words = ["difficulty", str(tmp_path / "set.jsonl"), "--out", str(tmp_path / "out")]
    assert main(["data", *words, "--from-eval", str(tmp_path / "eval")]) == 0
    kept = {p.id: rate_of(p) for p in open_problems(tmp_path / "out")}
    assert kept == {"some": PassRate("models/tiny", 8, 3), "never asked": None, "not in it": None}
    assert [(d.problem_id, d.reason) for d in read_decisions(tmp_path / "out" / "decisions.jsonl")] == [
        ("never", "never_solved"),
        ("always", "always_solved"),
        ("judge failed twice", "always_solved"),
        ("never asked", "not_measured"),
        ("not in it", "not_measured"),
    ]
    assert "3 of 6 problems; 3 dropped, 2 marked" in capsys.readouterr().out


def test_evaluations_with_different_numbers_of_replies_do_not_mix(tmp_path: Path) -> None:
    evaluation(tmp_path / "a", [ProblemResult("p", 8, 3)])
    evaluation(tmp_path / "b", [ProblemResult("q", 4, 3)], n=4)
    with pytest.raises(UserError, match="4, 8 replies"):
        read_pass_rates(tmp_path)
    assert read_pass_rates(tmp_path / "b").n == 4


@pytest.mark.process
def test_replies_are_drawn_judged_and_not_drawn_again(model: Path, tmp_path: Path) -> None:
    write_problems(tmp_path / "set.jsonl", [problem("one"), problem("two")])
    words = [
        *("data", "difficulty", str(tmp_path / "set.jsonl"), "--out", str(tmp_path / "rated.jsonl")),
        *("--model", str(model), "--n", "2", "--max-tokens", "4", "--no-chat"),
        *("--threads", "1", "--workers", "1", "--dtype", "float32"),
    ]
    assert main([*words, "--keep", "0..n"]) == 0
    rates = {p.id: rate_of(p) for p in open_problems(tmp_path / "rated.jsonl")}
    assert {id: rate and rate.n for id, rate in rates.items()} == {"one": 2, "two": 2}
    samples = tmp_path / "rated.jsonl.eval" / "problems" / "samples.jsonl"
    drawn = samples.read_bytes()
    assert main([*words, "--keep", "1..1", "--replace"]) == 0
    assert samples.read_bytes() == drawn
    kept = [p.id for p in open_problems(tmp_path / "rated.jsonl")]
    assert kept == [id for id, rate in rates.items() if rate is not None and rate.passed == 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("SET --out OUT", "--model is missing"),
        ("SET --out SET --model m", "which is read; name another output"),
        ("SET --out OUT --model m --n 1", "--keep 1..n-1: no count is within it for n = 1"),
        ("SET --out OUT --model m --from-eval e", "leave out --model"),
        ("SET --out OUT --from-eval absent", "absent: no such folder"),
    ],
)
def test_bad_input_ends_with_the_way_out(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(tmp_path / "set.jsonl", [problem("one")])
    places = {"SET": str(tmp_path / "set.jsonl"), "OUT": str(tmp_path / "out.jsonl")}
    assert main(["data", "difficulty", *(places.get(word, word) for word in words.split())]) == 2
    assert message in capsys.readouterr().err
