"""``whetstone report`` writes the page and names it; a folder that is no run ends with status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import write_run

from whetstone.cli.main import main


def test_writes_where_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", steps=2)
    assert main(["report", str(run), "--max-rollouts", "5"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_bad_input_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no metrics.jsonl" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--max-rollouts", "-1"]) == 2
    assert "--max-rollouts" in capsys.readouterr().err
