"""The page stands alone, shows what there is, and hostile text in a run cannot act in it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.synthetic_run import write_results, write_run
from whetstone.core.errors import UserError
from whetstone.report.charts import Columns, smooth
from whetstone.report.metrics import encode_record
from whetstone.report.page import script, script_json, write_page
from whetstone.report.panels import run_panels
from whetstone.report.run_data import RunData, read_run
from whetstone.report.run_page import run_page

HOSTILE = (
    "</script><script>alert(1)</script><!--<script>\u2028'\"&lt;img src=x onerror=alert(1)> </pre></body>"
)


class Outline(HTMLParser):
    """Tags with their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def page_of(folder: Path, **options: Any) -> str:
    return write_page(folder, **options).read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    """The JSON that the script of a page reads."""
    return json.loads(Outline(page).scripts[0])


def charts_of(page: str) -> dict[str, dict[str, Any]]:
    panels = data_of(page)["page"]["panels"]
    return {chart["id"]: chart for panel in panels for chart in panel.get("charts", [])}


def test_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path))
    assert "default-src 'none'" in page
    for tag, attributes in Outline(page).tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "onload", "onerror"} & attributes.keys()
    assert not re.search(r"https?:|url\(|@import", page.replace(script(), ""))
    assert not re.search(r"https?:(?!//github.com/leeoniya/uPlot )|import\(|importScripts", script())
    assert "Copyright (c) 2022 Leon Sorokin" in page


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    tame = Outline(page_of(write_run(tmp_path / "tame")))
    page = page_of(write_run(tmp_path / "hostile", name=HOSTILE.replace("'", ""), reply=HOSTILE))
    outline = Outline(page)
    assert [tag for tag, _ in outline.tags] == [tag for tag, _ in tame.tags]
    assert len(outline.scripts) == 2
    assert json.loads(outline.scripts[0])["rows"][0]["reply"] == HOSTILE
    assert "<script>alert" not in page


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)
)
def test_embedded_json_cannot_leave_its_element(value: object) -> None:
    text = script_json([value, HOSTILE])
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == [value, HOSTILE]


def test_every_panel_is_filled_by_a_run_and_empty_without_one(tmp_path: Path) -> None:
    full = page_of(write_run(tmp_path / "full"))
    titles = ["Reward", "pass@1", "Verdicts", "Reply length", "Time", "Optimisation"]
    panels = data_of(full)["page"]["panels"]
    assert [panel["title"] for panel in panels] == titles
    assert all(panel["charts"] for panel in panels)
    charts = charts_of(full)
    assert [series["label"] for series in charts["sources"]["series"]] == ["<taco>", "apps"]
    assert charts["pass"]["end"] == charts["reward"]["steps"][-1], "the axis ends where the run does"
    assert charts["time/peak_bytes"]["title"] == "peak memory, GB"
    assert {*charts["time/peak_bytes"]["series"][0]["values"]} == {2.0}
    assert {
        "length/repetition",
        "time/train_tokens_per_s",
        "time/peak_bytes",
        "loss/entropy",
    } <= charts.keys()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.jsonl").write_bytes(b"")
    empty = data_of(page_of(tmp_path / "empty"))
    assert [panel["title"] for panel in empty["page"]["panels"]] == titles
    assert not any(panel.get("charts") for panel in empty["page"]["panels"])
    assert empty["page"]["evaluations"] == empty["rows"] == []


@pytest.mark.parametrize("steps", [1, 2, 900])
def test_charts_have_equal_columns_at_any_length(tmp_path: Path, steps: int) -> None:
    records = [
        {"step": step, "kind": "train", "reward/mean": step / steps, "length/mean": step}
        | {"loss/loss": float("nan") if step % 7 == 3 else -step}
        | {"verdict/accepted": step % 3 + 1, "verdict/wrong_answer": 2}
        | {"time": {"generate": 2.0, "train": 1.0, "step": 3.5}}
        for step in range(1, steps + 1)
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    charts = charts_of(page_of(tmp_path))
    assert {"reward", "lengths", "loss/loss", "verdicts", "time"} <= charts.keys()
    for chart in charts.values():
        assert 1 <= len(chart["steps"]) <= 400
        assert chart["steps"][-1] == steps
        assert all(len(series["values"]) == len(chart["steps"]) for series in chart["series"])
    time = {series["label"]: series["values"] for series in charts["time"]["series"]}
    assert set(time) == {"generate", "train", "other"}
    assert time["other"] == [0.5] * len(time["other"])
    shares = [series["values"] for series in charts["verdicts"]["series"]]
    assert all(sum(column) == pytest.approx(1.0) for column in zip(*shares, strict=True))


def test_metrics_that_never_change_are_named_and_not_drawn() -> None:
    records = [
        {"kind": "train", "step": step, "loss/ratio_mean": 1.0, "loss/loss": 0.1 * step, "loss/lr": 3e-4}
        for step in (1, 2, 3)
    ]
    panel = run_panels(RunData(Path("run"), {}, records, []))[-1]
    assert [chart.id for chart in panel.charts] == ["loss/loss"]
    assert panel.note.endswith("The same in every step, and not drawn: mean ratio 1, learning rate 0.0003.")
    first = run_panels(RunData(Path("run"), {}, records[:1], []))[-1]
    assert "not drawn" not in first.note


def test_rollouts_shown_are_bounded_spread_over_steps_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path, steps=6)
    page = page_of(tmp_path, max_rollouts=12)
    rollouts = data_of(page)["rows"]
    assert len(rollouts) == 12
    assert {r["step"] for r in rollouts} == set(range(1, 7))
    assert "12 replies from 6 of 6 steps" in page
    assert data_of(page_of(tmp_path, max_rollouts=0))["rows"] == []
    few = data_of(page_of(tmp_path, max_rollouts=2))["rows"]
    assert [r["step"] for r in few] == [1, 6]
    assert "All 96 replies of 6 steps." in page_of(tmp_path)


def test_the_change_is_paired_when_both_evaluations_are_kept(tmp_path: Path) -> None:
    write_run(tmp_path, steps=4)
    for step, correct in ((0, 1), (4, 3)):
        write_results(tmp_path, step, [correct + i % 2 for i in range(30)])
    run = read_run(tmp_path)
    assert run.changes["heldout", "pass@1"].value == pytest.approx(0.5)
    held = [
        one
        for one in run_page(run, {})["evaluations"]
        if (one["set"], one["estimate"]) == ("heldout", "pass@1")
    ]
    assert held[0]["change"]["value"] == pytest.approx(0.5)
    assert held[0]["change"]["low"] > 0


def test_a_folder_that_is_no_run_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        write_page(tmp_path)
    write_run(tmp_path, steps=1)
    with pytest.raises(UserError, match="name another output"):
        write_page(tmp_path, tmp_path / "metrics.jsonl" / "page.html")
    (tmp_path / "recipe.yaml").write_text("{")
    with pytest.raises(UserError, match="recipe"):
        write_page(tmp_path)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200), st.integers(1, 50))
def test_thinning_keeps_the_bound_and_the_range(values: list[float], limit: int) -> None:
    columns = Columns([{"step": i, "x": value} for i, value in enumerate(values)], ["x"], limit)
    assert len(columns.steps) <= limit
    assert columns.width * len(columns.steps) >= len(values)
    known = [value for value in columns.values["x"] if value is not None]
    assert min(values) - 1e-5 <= min(known)
    assert max(known) <= max(values) + 1e-5
    assert columns.steps[-1] == len(values) - 1


def test_smoothing_skips_missing_values() -> None:
    assert smooth([1.0, None, 3.0, float("nan")], 2) == [1.0, 1.0, 3.0, 3.0]
    assert smooth([None], 3) == [None]
