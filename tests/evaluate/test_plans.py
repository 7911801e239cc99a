"""Plans: several benchmarks, each asked and sampled in its own way, from one file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.evaluate.benchmarks import livecodebench_variant
from whetstone.evaluate.plan_file import read_plan, shipped_plans
from whetstone.evaluate.results import load_evaluation


def planned(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "eval.yaml"
    file.write_text(text)
    return file


PLAN = """\
defaults: {max_tokens: 100, temperature: 0.5, limit: 1}
benchmarks:
  - {benchmark: problems, data: "builtin:heldout", name: short, n: 2, stop: [END]}
  - {benchmark: problems, data: "builtin:heldout", name: long, n: 1, max_tokens: 200, prompt: lcb}
"""


@pytest.mark.process
def test_each_benchmark_of_a_plan_is_sampled_and_asked_as_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        return completion(fenced("print(1)"))

    plan = planned(tmp_path, PLAN)
    with serving(Scripted(answer)) as server:
        words = ["eval", "--plan", str(plan), "--endpoint", server.url, "--workers", "1"]
        assert main([*words, "--temperature", "0.25", "--out", str(tmp_path / "out")]) == 0
    short, long = (load_evaluation(tmp_path / "out" / name) for name in ("short", "long"))
    assert (short.plan.n, short.plan.k, short.plan.max_tokens, short.plan.stop) == (2, (1, 2), 100, ("END",))
    assert (long.plan.n, long.plan.max_tokens, long.plan.stop) == (1, 200, ())
    assert short.plan.temperature == long.plan.temperature == 0.25
    assert (long.manifest["environment"]["prompt"], len(long.problems)) == ("lcb", 1)
    asked = [body["messages"] for _, body in server.requests]
    assert [turns[0]["role"] for turns in asked] == ["user", "user", "system"]
    assert asked[2][1]["content"].startswith("### Question:\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("benchmarks: [{benchmark: problems, temprature: 1}]", "unknown key .*temprature.*did you mean"),
        ("benchmarks: [{benchmark: mbpp}, {benchmark: mbpp}]", "two benchmarks are called `mbpp`"),
        ("benchmarks: [{benchmark: mbpp, name: ../x}]", "the name `../x` is that of a folder"),
        ("defaults: {n: 1}", "a mapping with a list of `benchmarks`"),
        ("benchmarks: [", "not YAML"),
        ("benchmarks: [{benchmark: mbpp, n: 0}]", "benchmarks.0.n"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_plan(str(planned(tmp_path, text)))


def test_conflicting_options_are_refused_before_any_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = ["--endpoint", "http://127.0.0.1:1"]
    plan = planned(tmp_path, "benchmarks: [{benchmark: problems, n: 2, k: [4]}]")
    for words, message in (
        (["--plan", str(plan)], "pass@4 needs n >= 4"),
        (["--plan", str(plan), "--benchmark", "mbpp"], "one of them"),
        (["--plan", "archr"], "did you mean `archer`"),
        (["--plan", str(plan), "--n", "4"], "needs --data"),
    ):
        assert main(["eval", *words, *nobody]) == 2
        assert message in capsys.readouterr().err


def test_the_plans_that_ship_are_whole_and_say_where_they_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = shipped_plans()
    assert {"archer", "scalebox", "code-r1", "astraflow", "lcb", "evalplus"} == set(names)
    for name, about in names.items():
        assert about
        for entry in read_plan(name).entries():
            assert entry.n is not None
            assert entry.temperature is not None
            assert entry.max_tokens is not None
            base, *words = entry.benchmark.split(":")
            if base == "livecodebench":
                livecodebench_variant(words)
    assert main(["recipes", "--plans"]) == 0
    assert "scalebox" in capsys.readouterr().out


def test_a_window_ends_at_the_midnight_that_begins_its_last_day() -> None:
    keep = livecodebench_variant(["release_v5", "2024-08-01..2025-02-01"]).keep
    assert keep is not None
    days = ["2024-07-31T23:59:00", "2024-08-01T00:00:00", "2025-02-01T00:00:00", "2025-02-01T00:00:01"]
    assert [keep({"contest_date": day}) for day in days] == [False, True, True, False]
    assert not keep({"contest_date": "no date"})
    milliseconds = [round(datetime.fromisoformat(f"{day}+00:00").timestamp() * 1000) for day in days]
    assert [keep({"contest_date": date}) for date in milliseconds] == [False, True, True, False]
