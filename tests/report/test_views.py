"""Views of the metrics: each record once, also of killed and resumed runs, and never at the run's expense."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from whetstone.core.errors import UserError
from whetstone.report.settings import ReportSection
from whetstone.report.sinks import SINKS, MetricRow, ShownMetrics, SinkRun, check_views

ASKED = ReportSection(wandb="project", tensorboard=True)


class Kept:
    """A view in a file, which keeps what it was shown."""

    remembers = True

    def __init__(self, run: SinkRun) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self._file = (run.folder / "rows").open("a" if self.remembers else "w")
        self._limit = 3 if run.project == "breaks" else 1 << 30

    def show(self, row: MetricRow) -> None:
        if row.step == self._limit:
            raise OSError("the tool is gone")
        print(row.kind, row.step, json.dumps(row.numbers), file=self._file, flush=True)

    def close(self) -> None:
        self._file.close()


class Anew(Kept):
    remembers = False


@pytest.fixture(autouse=True)
def views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "wandb", Kept)
    monkeypatch.setitem(SINKS, "tensorboard", Anew)


def shown(folder: Path, view: str) -> list[str]:
    return [line.split(" {")[0] for line in (folder / "views" / view / "rows").read_text().splitlines()]


def start(
    folder: Path, done: int, steps: range, *, settings: ReportSection = ASKED, kill: bool = False
) -> None:
    """A start of a run that goes on after step ``done``, and is killed or ends."""
    metrics = ShownMetrics(folder, settings, "run", print)
    metrics.truncate_after(done)
    metrics.show()
    for step in steps:
        metrics.write({"step": step, "kind": "train", "reward/mean": 0.5, "note": "x", "time": {"step": 2.0}})
        if step % 2 == 0:
            metrics.write({"step": step, "kind": "eval", "problems/mean": 0.1})
    if not kill:
        metrics.close()


def test_a_resumed_run_shows_each_step_of_a_kind_once(tmp_path: Path) -> None:
    start(tmp_path, -1, range(1, 6), kill=True)
    start(tmp_path, 2, range(3, 8))  # 3 to 5 are made again
    whole = ["train 1", "train 2", "eval 2", "train 3", "train 4", "eval 4", "train 5", "train 6", "eval 6"]
    assert shown(tmp_path, "tensorboard") == [*whole, "train 7"]
    assert sorted(shown(tmp_path, "wandb")) == sorted([*whole, "train 7"])
    first = (tmp_path / "views" / "wandb" / "rows").read_text().splitlines()[0]
    assert json.loads(first.removeprefix("train 1 ")) == {"train/reward/mean": 0.5, "train/time/step": 2.0}


def test_a_sink_that_is_enabled_later_gets_the_earlier_records(tmp_path: Path) -> None:
    start(tmp_path, -1, range(1, 4), settings=ReportSection())
    assert not (tmp_path / "views").exists()
    start(tmp_path, 3, range(4, 5))
    assert shown(tmp_path, "wandb") == ["train 1", "train 2", "eval 2", "train 3", "train 4", "eval 4"]


def test_a_view_that_fails_costs_the_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path, -1, range(1, 6), settings=ReportSection(wandb="breaks", tensorboard=True))
    assert "`report.wandb` is closed because it failed: the tool is gone" in capsys.readouterr().out
    assert shown(tmp_path, "wandb") == ["train 1", "train 2", "eval 2"]
    assert shown(tmp_path, "tensorboard")[-1] == "train 5"
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 7


def test_a_view_without_its_library_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SINKS, "trackio", Kept)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    with pytest.raises(UserError, match=r"`report.trackio`.*pip install trackio"):
        check_views(ReportSection(trackio="project"))
    check_views(ReportSection())
