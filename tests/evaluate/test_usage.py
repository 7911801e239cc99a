"""The usage of an evaluation: tokens and time, in the summary and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.evaluate.folder import EvaluationUsage, read_prompts
from whetstone.evaluate.results import load_evaluation

pytestmark = pytest.mark.process


def answer(path: str, body: dict[str, Any], before: int) -> Answer:
    status, said = completion(fenced("print(1)"), tokens=1000)
    return status, {**said, "usage": {"completion_tokens": 1000, "prompt_tokens": 250_000}}


def words(url: str, out: Path) -> list[str]:
    what = ["eval", "--benchmark", "problems", "--data", "builtin:heldout", "--limit", "2", "--n", "2"]
    return [*what, "--endpoint", url, "--workers", "1", "--out", str(out)]


def test_json_is_the_whole_of_stdout_and_holds_tokens_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Scripted(answer)) as server:
        assert main([*words(server.url, tmp_path), "--json"]) == 0
        said = capsys.readouterr()
        assert main([*words(server.url, tmp_path), "--json"]) == 0  # nothing is asked again
        assert len(server.requests) == 4
    found = json.loads(said.out)["problems"]
    usage = found["usage"]
    assert (usage["tokens"], usage["prompt_tokens"]) == (4000, 1_000_000)
    assert "4,000 tokens written and 1,000,000 read in" in said.err
    evaluation = load_evaluation(tmp_path / "problems")
    assert found["pass_at"]["1"]["value"] == evaluation.pass_at[1].value
    assert found["manifest"] == evaluation.manifest
    again = json.loads(capsys.readouterr().out)["problems"]["usage"]
    assert again["seconds"] > usage["seconds"] > 0


def test_prompts_are_stored_next_to_the_replies(tmp_path: Path) -> None:
    with serving(Scripted(answer)) as server:
        assert main(words(server.url, tmp_path)) == 0
    evaluation = load_evaluation(tmp_path / "problems")
    prompts = read_prompts(tmp_path / "problems")
    assert list(prompts) == [problem.id for problem in evaluation.problems]
    asked = {body["messages"][0]["content"] for _, body in server.requests}
    assert {prompt.user for prompt in prompts.values()} == asked


def test_usage_is_told_with_hours_and_minutes() -> None:
    assert EvaluationUsage(5, None, 3725).line == "5 tokens written in 1 h 2 min"
    assert EvaluationUsage(5, None, 65).line == "5 tokens written in 1 min 5 s"
