"""The real tools show a run that was killed and resumed: every step once, with its numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

START = """
import os, sys
from pathlib import Path
from whetstone.report.settings import ReportSection
from whetstone.report.sinks import ShownMetrics, check_views
folder, view, done, last, killed = Path(sys.argv[1]), *sys.argv[2:]
settings = ReportSection.model_validate({view: True if view == "tensorboard" else "project"})
check_views(settings)
metrics = ShownMetrics(folder, settings, "run", print)
metrics.truncate_after(int(done))
metrics.show()
for step in range(int(done) + 1, int(last) + 1):
    metrics.write({"step": step, "kind": "train", "reward/mean": step / 10, "time": {"step": 1.0}})
    if step % 2 == 0:
        metrics.write({"step": step, "kind": "eval", "held/mean": 0.5})
if killed == "killed":
    import time
    time.sleep(float(os.environ["SETTLES_S"]))  # for what the tool hands over by itself
    os.kill(os.getpid(), 9)
metrics.close()
"""
TRAIN = {step: step / 10 for step in range(1, 7)}
EVAL = {2: 0.5, 4: 0.5, 6: 0.5}


def run_twice(folder: Path, view: str, monkeypatch: pytest.MonkeyPatch, settles_s: float = 0) -> None:
    """Steps 1 to 4 and a kill, then on from the checkpoint of step 2 to the end."""
    monkeypatch.setenv("SETTLES_S", str(settles_s))
    for done, last, killed in (("0", "4", "killed"), ("2", "6", "ends")):
        command = [sys.executable, "-c", START, str(folder), view, done, last, killed]
        finished = subprocess.run(command, capture_output=True, text=True)
        assert finished.returncode == (-9 if killed == "killed" else 0), finished.stderr
        assert "let go of" not in finished.stdout, finished.stdout


def test_tensorboard_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_twice(tmp_path, "tensorboard", monkeypatch)
    events = EventAccumulator(str(tmp_path / "views" / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    for tag, expected in (("train/reward/mean", TRAIN), ("eval/held/mean", EVAL)):
        points = [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors(tag)]
        assert points == [(step, pytest.approx(value)) for step, value in expected.items()]
    assert "train/time/step" in events.Tags()["tensors"]


def logged(content: bytes) -> Iterator[bytes]:
    """The records of wandb's file: a log of LevelDB behind seven bytes of its own."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_wandb_is_told_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run_twice(tmp_path, "wandb", monkeypatch)
    rows: list[dict[str, Any]] = []
    ids: set[str] = set()
    for file in sorted((tmp_path / "views" / "wandb").rglob("*.wandb")):
        for data in logged(file.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
    assert len(ids) == 1
    found = Counter(row["train/step"] for row in rows if "train/step" in row)
    assert found == dict.fromkeys(TRAIN, 1)
    assert {row["train/step"]: row["train/reward/mean"] for row in rows if "train/step" in row} == TRAIN
    assert Counter(row["eval/step"] for row in rows if "eval/step" in row) == dict.fromkeys(EVAL, 1)


def test_trackio_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run_twice(tmp_path, "trackio", monkeypatch, settles_s=5)
    [file] = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as base:
        found = base.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
    assert len({name for name, _, _ in found}) == 1
    rows = [(step, json.loads(text)) for _, step, text in found]
    assert {step: row["train/reward/mean"] for step, row in rows if "train/reward/mean" in row} == TRAIN
    assert Counter(step for step, row in rows if "train/reward/mean" in row) == dict.fromkeys(TRAIN, 1)
    assert Counter(step for step, row in rows if "eval/held/mean" in row) == dict.fromkeys(EVAL, 1)
