"""The page of an evaluation and of a comparison: whole, alone, and hostile text cannot act in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_page import HOSTILE, Outline
from whetstone.cli.main import main
from whetstone.core.problem import CallCase, CallTests, Problem
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.folder import EvaluationFolder
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import SampleResult
from whetstone.evaluate.tally import Tally
from whetstone.report.evaluation_page import MOST_HEAD, MOST_TAIL, clip_text
from whetstone.report.page import script


def write(folder: Path, right: dict[str, list[bool]], text: str = "reply", model: str = "m") -> Path:
    """An evaluation with these verdicts of each problem's replies."""
    n = len(next(iter(right.values())))
    tally = Tally(SamplingPlan(n=n), n * len(right))
    manifest = {"model": {"source": model}, "sampling": {"n": n}}
    with EvaluationFolder(folder, manifest) as kept:
        for name, verdicts in right.items():
            problem = Problem(name, f"about {name}", CallTests([CallCase(1, [1])], "f"))
            tally.expect(problem)
            for index, good in enumerate(verdicts):
                verdict = Verdict.ACCEPTED if good else Verdict.WRONG_ANSWER
                case = CaseJudgement(verdict, reason=text)
                judged = Judgement(verdict, [case], float(good), "none")
                sample = SampleResult(name, index, text, text, judged, "stop", 3)
                kept.add(sample)
                tally.add(sample)
        kept.keep_prompts(
            (name, Prompt(f"{text} about {name}", "", chat=True, system=text)) for name in right
        )
        kept.finish(tally.evaluation(manifest))
    return folder


def test_two_evaluations_have_one_title_on_the_page_and_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (write(tmp_path / name, {"p/1": [True, name == "after"]}) for name in ("before", "after"))
    assert main(["eval", "compare", str(a), str(b)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "before and after"
    assert main(["report", str(a), str(b), "--out", str(tmp_path / "page.html")]) == 0
    assert [one["name"] for one in data_of(tmp_path / "page.html")["page"]["results"]] == ["before and after"]


def data_of(file: Path) -> dict[str, Any]:
    outline = Outline(file.read_text(encoding="utf-8"))
    return json.loads(outline.scripts[0])


def test_an_evaluation_is_shown_problem_by_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "one" / "mbpp", {"p/1": [True, False], "p/2": [False, False]})
    assert main(["report", str(folder), "--replies", "1"]) == 0
    file = folder / "evaluation.html"
    assert capsys.readouterr().out.strip() == str(file)
    text = file.read_text()
    assert "src=" not in text.replace(script(), "")
    assert "http" not in text.partition("</style>")[2].partition("<script")[0]
    (results,) = data_of(file)["page"]["results"]
    assert results["rows"][0][:2] == ["pass@1 (avg@2)", "25.0%"]
    first, second = data_of(file)["rows"]
    assert (first["id"], first["prompt"]) == ("p/1", "[system]\nreply\n\n[user]\nreply about p/1")
    (side,) = first["sides"]
    assert (side["right"], side["n"], len(side["replies"])) == (1, 2, 1)
    assert side["replies"][0]["cases"][0]["verdict"] == "accepted"
    assert second["sides"][0]["right"] == 0


def test_a_comparison_has_both_sides_and_lists_differing_settings(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"p/1": [False, False], "p/2": [True, True], "p/3": [True, True]}, model="old")
    b = write(tmp_path / "b", {"p/1": [True, True, True], "p/2": [True, True, False]}, model="new")
    out = tmp_path / "both.html"
    assert main(["report", str(a), str(b), "--out", str(out)]) == 0
    found = data_of(out)
    assert [[s["right"] for s in p["sides"]] for p in found["rows"]] == [[0, 3], [2, 2]]
    assert [row["outcome"] for row in found["rows"]] == ["gained", "lost"]
    (results,) = found["page"]["results"]
    assert any("sampling.n (2 and 3)" in line for line in results["differences"])
    assert results["notes"][0].startswith("a: old")


def test_hostile_replies_stay_text(tmp_path: Path) -> None:
    tame = write(tmp_path / "tame", {"p": [True]})
    hostile = write(tmp_path / "hostile", {"p": [True]}, text=HOSTILE, model=HOSTILE)
    for folder in (tame, hostile):
        assert main(["report", str(folder)]) == 0
    pages = [Outline((folder / "evaluation.html").read_text(encoding="utf-8")) for folder in (tame, hostile)]
    assert [tag for tag, _ in pages[0].tags] == [tag for tag, _ in pages[1].tags]
    (problem,) = json.loads(pages[1].scripts[0])["rows"]
    assert problem["sides"][0]["replies"][0]["text"] == HOSTILE


def test_a_long_text_keeps_its_two_ends(tmp_path: Path) -> None:
    text = "a" * MOST_HEAD + "b" * 1000 + "c" * MOST_TAIL
    short = clip_text(text)
    assert short.startswith("a" * MOST_HEAD)
    assert short.endswith("\n" + "c" * MOST_TAIL)
    assert "1000 characters left out" in short
    assert clip_text("c" * (MOST_HEAD + MOST_TAIL)) == "c" * (MOST_HEAD + MOST_TAIL)


def test_what_cannot_be_shown_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "the folder is empty; give the folder of an evaluation" in capsys.readouterr().err
    a, b = write(tmp_path / "a" / "x", {"p": [True]}), write(tmp_path / "b" / "y", {"q": [True]})
    assert main(["report", str(a), str(b)]) == 2
    assert "compare evaluations of the same benchmark" in capsys.readouterr().err
    samples = a / "samples.jsonl"
    before = samples.read_bytes()
    assert main(["report", str(a), "--out", str(samples), "--replace"]) == 2
    assert samples.read_bytes() == before
