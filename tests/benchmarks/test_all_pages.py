"""``python -m benchmarks``: the plan, interruptions, refusals; and what each page says of its measurement."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import PAGES, BenchmarkCommand, BenchmarkPage, measure, read_pages
from benchmarks.pictures import CHARTS, BarChart, draw, number_of, table_of

FOLDER = Path(__file__).parents[2] / "benchmarks"
MEASURED = re.compile(
    r"^Measured: [\d to,and]+ [A-Z][a-z]+ 20\d\d, (?:(?:recorded in )?commit [0-9a-f]{7}|commit not recorded)"
    r".*(?:idle|other work|load not recorded)",
    re.MULTILINE,
)


def pages(tmp_path: Path, *commands: BenchmarkCommand) -> list[BenchmarkPage]:
    return [BenchmarkPage("page", list(commands))]


def noted(folder: Path, name: str, more: str = "") -> str:
    return f"{{python}} -c \"open({str(folder / name)!r}, 'a').write('x'){more}\""


def test_every_page_is_in_the_plan_once_and_the_plan_takes_three_hours_at_most() -> None:
    plan = read_pages(PAGES)
    names = [page.name for page in plan]
    assert len(set(names)) == len(names)
    assert set(names) == {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert all(page.commands or page.by_hand for page in plan)
    assert sum(command.minutes for page in plan for command in page.commands) <= 180
    scripts = [word for page in plan for c in page.commands for word in c.run.split() if word.endswith(".py")]
    assert all((FOLDER.parent / script).exists() for script in scripts)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_every_page_has_the_date_and_the_machine_of_its_measurements(page: Path) -> None:
    if page.stem != "README":
        assert MEASURED.search(page.read_text(encoding="utf-8"))


@pytest.mark.process
def test_an_interrupted_run_resumes_after_its_last_result(tmp_path: Path) -> None:
    first = BenchmarkCommand(noted(tmp_path, "one"), 1, timed=False)
    failing = BenchmarkCommand(noted(tmp_path, "two", "; raise SystemExit(3)"), 1, timed=False)
    out = tmp_path / "out"
    assert not measure(pages(tmp_path, first, failing), {}, out, 1, 0)
    assert measure(
        pages(tmp_path, first, BenchmarkCommand(noted(tmp_path, "two"), 1, timed=False)), {}, out, 1, 0
    )
    assert ((tmp_path / "one").read_text(), (tmp_path / "two").read_text()) == ("x", "xx")
    assert set(json.loads((out / "state.json").read_text())) == {"page/0", "page/1"}
    log = (out / "page.1.log").read_text()
    assert "commit" in log
    assert "status 0" in log


@pytest.mark.process
def test_a_busy_machine_refuses_timed_commands_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 1.0, 1.0))
    timed = BenchmarkCommand(noted(tmp_path, "timed"), 1)
    other = BenchmarkCommand(noted(tmp_path, "other"), 1, timed=False)
    assert not measure(pages(tmp_path, timed, other), {}, tmp_path / "out", 1, 0)
    assert not (tmp_path / "timed").exists()
    assert (tmp_path / "other").exists()
    assert "page/0: refused, the load is 1.50 and may be 0.5" in capsys.readouterr().out
    monkeypatch.setattr(os, "getloadavg", lambda: (0.2, 1.0, 1.0))
    assert measure(pages(tmp_path, timed, other), {}, tmp_path / "out", 1, 0)
    assert (tmp_path / "timed").exists()


@pytest.mark.process
def test_a_command_without_its_values_is_skipped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needing = BenchmarkCommand("{python} x.py --data {data} --other {trl}", 1)
    assert measure(pages(tmp_path, needing), {"data": "D"}, tmp_path / "out", 1, 0)
    assert capsys.readouterr().out == "page/0: skipped; give --set trl=…\n"


@pytest.mark.process
def test_an_unknown_page_is_an_error_with_the_known_ones() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "judge_sped"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    assert done.returncode == 1
    assert "unknown page judge_sped; known: " in done.stderr
    assert "judge_speed" in done.stderr


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.file.stem)
def test_a_picture_shows_the_figures_of_its_page(chart: BarChart) -> None:
    page = (FOLDER / f"{chart.page}.md").read_text(encoding="utf-8")
    assert f"]({chart.file.name})" in page
    assert draw(chart) == chart.file.read_text(encoding="utf-8")
    titles, rows = table_of(page, chart.heading)
    for row in rows:
        if not chart.leave_out or chart.leave_out not in row[0]:
            for column in chart.columns:
                assert f">{number_of(row[titles.index(column)]):g}</text>" in draw(chart)


@pytest.mark.parametrize(
    ("cell", "number"), [("49,276", 49276), (".182", 0.182), ("23.8%", 23.8), ("-0.5 s", -0.5), ("**7**", 7)]
)
def test_the_first_number_of_a_cell_is_read(cell: str, number: float) -> None:
    assert number_of(cell) == number


def test_a_page_without_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table after '## Speed'"):
        table_of("# Page\n\ntext\n", "## Speed")
