"""``whetstone report`` writes the page and names it; a folder that is no run ends with status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.report.synthetic_run import write_run
from whetstone.cli.main import main


def test_writes_where_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", steps=2)
    assert main(["report", str(run), "--max-rollouts", "5"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_result_is_had_as_json_without_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", steps=4)
    assert main(["report", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["step"], found["steps"]) == ("demo", 4, 4)
    measured = {(one["set"], one["estimate"]): one for one in found["evaluations"]}
    assert measured["heldout", "pass@1"]["before"] == {
        "step": 0,
        "value": pytest.approx(0.27),
        "low": pytest.approx(0.21),
        "high": pytest.approx(0.33),
    }
    assert measured["train", "pass@8"]["after"]["step"] == 4
    assert measured["train", "pass@8"]["change"] is None
    assert 0 <= found["last"]["reward/mean"] <= 1
    assert not (run / "report.html").exists()

    page = tmp_path / "page.html"
    assert main(["report", str(run), "--json", "--out", str(page)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == found
    assert said.err.strip() == str(page)


def test_bad_input_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "the folder is empty; give the folder of an evaluation or of a run" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--max-rollouts", "-1"]) == 2
    assert "--max-rollouts" in capsys.readouterr().err
