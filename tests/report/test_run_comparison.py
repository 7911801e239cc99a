"""Several runs side by side: generated tokens, paired differences to the first, and one static page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.synthetic_run import write_results, write_run
from tests.report.test_page import Outline, data_of
from whetstone.cli.main import main
from whetstone.evaluate.passk import paired_difference
from whetstone.report.metrics import read_metrics

PROBLEMS = 12


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    found = [write_run(tmp_path / name, steps=4) for name in ("rl", "ssd", "sft")]
    for number, run in enumerate(found):
        write_results(run, 0, [1] * PROBLEMS)
        write_results(run, 4, [min(4, 1 + (i + number) % 4) for i in range(PROBLEMS)], seed=number)
    return found


def compared(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["report", *map(str, runs), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_run_has_its_tokens_and_its_paired_difference_to_the_first(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(runs, capsys)
    assert [run["name"] for run in found["runs"]] == ["rl", "ssd", "sft"]
    for run, folder in zip(found["runs"], runs, strict=True):
        records = [r for r in read_metrics(folder / "metrics.jsonl") if r["kind"] == "train"]
        assert run["generated"] == sum(record["length/total"] for record in records) > 0
        assert (run["algorithm"], run["seed"], run["steps"], run["trained"]) == ("dapo", 3, 4, None)
    [pass_1] = [r["rows"] for r in found["results"] if (r["set"], r["estimate"]) == ("heldout", "pass@1")]
    assert [row["run"] for row in pass_1] == ["rl", "ssd", "sft"]
    assert pass_1[0]["difference"] is None
    first = {f"p{i}": (1 + i % 4) / 4 for i in range(PROBLEMS)}
    second = {f"p{i}": (1 + (i + 1) % 4) / 4 for i in range(PROBLEMS)}
    expected = paired_difference(first, second)
    assert pass_1[1]["difference"] == pytest.approx(
        {"value": expected.value, "low": expected.low, "high": expected.high}
    )
    assert pass_1[1]["change"]["value"] == pytest.approx(sum(second.values()) / PROBLEMS - 0.25)
    # Other seeds are no other measurement.
    assert found["notes"] == []


def test_evaluations_that_were_made_in_another_way_are_noted(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(runs[1], 4, [2] * (PROBLEMS - 2), temperature=0.3)
    found = compared(runs, capsys)
    assert [note for note in found["notes"] if "temperature" in note and note.startswith("ssd, heldout")]
    assert any("0 problems only here, 2 only there" in note for note in found["notes"])
    assert not any(note.startswith("sft") for note in found["notes"])


def test_the_comparison_page_plots_evaluations_over_generated_tokens(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *map(str, runs)]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == runs[0] / "comparison.html"
    text = page.read_text(encoding="utf-8")
    data = data_of(text)
    assert len(Outline(text).scripts) == 2
    assert data["kind"] == "curves"
    assert [run["name"] for run in data["page"]["comparison"]["runs"]] == ["rl", "ssd", "sft"]
    charts = {chart["id"]: chart for panel in data["page"]["panels"] for chart in panel["charts"]}
    evaluated = charts["eval/heldout/pass@1"]
    generated = [run["generated"] for run in data["page"]["comparison"]["runs"]]
    assert evaluated["axis"] == "generated tokens"
    assert (evaluated["steps"][0], evaluated["steps"][-1]) == (0, max(generated))
    assert "axis" not in charts["reward/mean"]
    assert charts["reward/mean"]["steps"] == [1, 2, 3, 4]


def test_runs_with_equal_folder_names_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run(tmp_path / arm / "0", steps=2) for arm in ("rl", "ssd")]
    assert [run["name"] for run in compared(runs, capsys)["runs"]] == [str(run) for run in runs]


def test_what_is_no_run_is_refused(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *map(str, [*runs, runs[0].parent])]) == 2
    said = capsys.readouterr().err
    assert f"no metrics.jsonl in it, but {runs[0].name} is a run" in said
    assert "give the folders of runs" in said
    assert main(["report", *([str(runs[0])] * 9)]) == 2
    assert "give at most 8" in capsys.readouterr().err
    inside = runs[1] / "metrics.jsonl"
    assert main(["report", *map(str, runs), "--out", str(inside), "--replace"]) == 2
    assert inside.read_text(encoding="utf-8").startswith("{")
