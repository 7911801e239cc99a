"""The page stands alone, shows what there is, and hostile text in a run cannot act in it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.synthetic_run import write_run
from whetstone.errors import UserError
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.results import Evaluation, ProblemResult, Shares
from whetstone.report.metrics import encode_record
from whetstone.report.page import render, script_json, write_page
from whetstone.report.run_data import read_run
from whetstone.report.scales import Points, nice_ticks, thin

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


def test_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path))
    assert "default-src 'none'" in page
    for tag, attributes in Outline(page).tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "onload", "onerror"} & attributes.keys()
    assert not re.search(r"https?:|url\(|@import", page)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    tame = Outline(page_of(write_run(tmp_path / "tame")))
    page = page_of(write_run(tmp_path / "hostile", name=HOSTILE.replace("'", ""), reply=HOSTILE))
    outline = Outline(page)
    assert [tag for tag, _ in outline.tags] == [tag for tag, _ in tame.tags]
    assert len(outline.scripts) == 2
    assert json.loads(outline.scripts[0])["rollouts"][0]["reply"] == HOSTILE
    assert "<script>alert" not in page


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)
)
def test_embedded_json_cannot_leave_its_element(value: object) -> None:
    text = script_json([value, HOSTILE])
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == [value, HOSTILE]


def test_every_panel_is_filled_by_a_run_and_says_no_data_without_one(tmp_path: Path) -> None:
    full = page_of(write_run(tmp_path / "full"))
    titles = ["Result", "Reward", "pass@1", "Verdict mix", "Reply length", "Time", "Optimisation", "Rollouts"]
    assert re.findall(r"<h2>(.*?)</h2>", full) == titles
    for name in (
        "&lt;taco&gt;",
        "repeated spans of 20 tokens",
        "tokens trained per second",
        "peak memory, GB",
    ):
        assert name in full
    # The one left is the browser's, which the page's script hides when there are rollouts.
    assert re.findall(r'class="empty"[^>]*>no data', full) == ['class="empty" id="no-rollouts">no data']
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.jsonl").write_bytes(b"")
    empty = page_of(tmp_path / "empty")
    assert re.findall(r"<h2>(.*?)</h2>", empty) == titles
    assert empty.count("no data") == len(titles)


@pytest.mark.parametrize("steps", [1, 2, 900])
def test_charts_are_well_formed_at_any_length(tmp_path: Path, steps: int) -> None:
    records = [
        {"step": step, "kind": "train", "reward/mean": step / steps, "length/mean": step}
        | {"loss/loss": float("nan") if step % 7 == 3 else -step}
        | {"verdict/accepted": step % 3 + 1, "verdict/wrong_answer": 2}
        | {"time": {"generate": 2.0, "train": 1.0, "step": 3.5}}
        for step in range(1, steps + 1)
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    page = page_of(tmp_path)
    charts = re.findall(r"<svg class=\"chart\".*?</svg>", page, re.DOTALL)
    assert len(charts) >= 5
    for chart in charts:
        ElementTree.fromstring(chart)
        assert "nan" not in chart
        assert "inf" not in chart
    data = json.loads(Outline(page).scripts[0])
    assert set(data["charts"]) == set(re.findall(r'data-chart="([^"]+)"', page))


def test_rollouts_shown_are_bounded_spread_over_steps_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path, steps=6)
    page = page_of(tmp_path, max_rollouts=12)
    rollouts = json.loads(Outline(page).scripts[0])["rollouts"]
    assert len(rollouts) == 12
    assert {r["step"] for r in rollouts} == set(range(1, 7))
    assert "12 replies from 6 of 6 steps" in page
    assert json.loads(Outline(page_of(tmp_path, max_rollouts=0)).scripts[0])["rollouts"] == []
    few = json.loads(Outline(page_of(tmp_path, max_rollouts=2)).scripts[0])["rollouts"]
    assert [r["step"] for r in few] == [1, 6]
    assert "All 96 replies of 6 steps." in page_of(tmp_path)


def test_the_change_is_paired_when_both_evaluations_are_kept(tmp_path: Path) -> None:
    write_run(tmp_path, steps=4)
    for step, correct in ((0, 1), (4, 3)):
        problems = [ProblemResult(f"p{i}", 4, min(4, correct + i % 2)) for i in range(30)]
        evaluation = Evaluation(Plan(n=4), problems, {}, Shares(120, {}, 0, 0, 0, 0, 1), {})
        evaluation.save(tmp_path / "evaluations" / f"step-{step}-heldout")
    run = read_run(tmp_path)
    assert run.changes["heldout", 1].value == pytest.approx(0.5)
    page = render(run)
    assert '<b class="up">+50.0</b>' in page
    assert "the change is paired problem by problem" in page


def test_a_folder_that_is_no_run_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        write_page(tmp_path)
    write_run(tmp_path, steps=1)
    with pytest.raises(UserError, match="name another output"):
        write_page(tmp_path, tmp_path / "metrics.jsonl" / "page.html")
    (tmp_path / "recipe.yaml").write_text("{")
    with pytest.raises(UserError, match="recipe"):
        write_page(tmp_path)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.booleans())
def test_ticks_lie_inside_and_are_few(low: float, width: float, whole: bool) -> None:
    ticks = nice_ticks(low, low + width, 4, whole=whole)
    assert 1 <= len(ticks) <= 7
    if len(ticks) > 1:
        assert all(low - width * 1e-3 <= tick <= low + width * 1.001 for tick in ticks)
        assert not whole or all(tick == round(tick) for tick in ticks)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200), st.integers(1, 50))
def test_thinning_keeps_the_bound_and_the_range(values: list[float], limit: int) -> None:
    points: Points = [(float(i), v) for i, v in enumerate(values)]
    thinned, width = thin(points, limit)
    assert len(thinned) <= limit
    assert width * len(thinned) >= len(points)
    assert min(values) - 1e-9 <= min(y for _, y in thinned if y is not None)
    assert thinned[-1][0] == points[-1][0]
