"""A run that was killed goes on as if it had not been, and says from where."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.run.tiny_recipe import command, contents, finished, record_count, run, start, timeless
from whetstone.cli.main import main
from whetstone.engine.loading import LoadedModel
from whetstone.report.starts import read_starts
from whetstone.run.initial_model import save_initial_weights


@pytest.fixture(scope="module")
def uninterrupted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    finished(recipe, out)
    trained = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    # A run that never moves its weights would be resumed exactly by anything.
    assert all(record["loss/updates"] > 0 for record in trained if record["kind"] == "train")
    return out


def kill_in_step(recipe: Path, out: Path, records: int) -> None:
    """Start the run, and SIGKILL it while it works on the step after the ``records``-th record."""
    deadline = time.monotonic() + 900
    with start(recipe, out) as process:
        while time.monotonic() < deadline and process.running:
            if record_count(out) >= records:
                break
            time.sleep(0.005)
        assert process.running, "the run ended before it could be killed"
        process.kill()


@pytest.mark.process
@pytest.mark.parametrize(
    "records", [1, *(pytest.param(records, marks=pytest.mark.extended) for records in (2, 3, 5))]
)
def test_killed_and_restarted_metrics_equal_those_of_an_uninterrupted_run(
    records: int, recipe: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    kill_in_step(recipe, out, records)
    finished(recipe, out)
    assert timeless(out / "metrics.jsonl") == timeless(uninterrupted / "metrics.jsonl")
    assert len(read_starts(out)) == 2
    kinds = sorted(p.name for p in (out / "rollouts").iterdir())
    assert kinds == sorted(p.name for p in (uninterrupted / "rollouts").iterdir())


@pytest.mark.extended
@pytest.mark.process
def test_a_resumed_run_says_from_where_and_may_take_other_threads(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished(recipe, out, "trainer.steps=2", "deterministic=false")
    resumed = finished(recipe, out, "trainer.steps=3", "deterministic=false", "model.threads=2")
    assert "from step 2" in resumed.stdout


@pytest.mark.process
def test_other_threads_are_refused_where_they_would_change_promised_bits(
    recipe: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(recipe), f"out={uninterrupted}", "trainer.steps=6", "model.threads=2"]) == 2
    said = capsys.readouterr().err
    assert "model.threads (1 there, 2 now); `deterministic` promises the same bits" in said


def tear(checkpoint: Path) -> None:
    os.truncate(checkpoint / "trainer" / "__0_0.distcp", 100)


@pytest.mark.parametrize(
    ("lose", "said"),
    [(tear, "no checkpoint of this run is valid"), (shutil.rmtree, "5 steps without a checkpoint")],
    ids=["torn", "gone"],
)
def test_a_run_without_a_whole_checkpoint_is_refused_and_nothing_is_lost(
    lose: Callable[[Path], None],
    said: str,
    recipe: Path,
    uninterrupted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    kept = sorted((out / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-4", "step-5"]
    for path in kept:
        lose(path)
    before = contents(out)
    assert main(["train", str(recipe), f"out={out}", "trainer.steps=6"]) == 2
    refusal = capsys.readouterr().err
    assert said in refusal
    assert "out=FOLDER" in refusal
    assert contents(out) == before


@pytest.mark.process
def test_another_recipe_in_the_same_folder_is_refused_by_key(recipe: Path, uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    refused = run(recipe, uninterrupted, "trainer.lr=0.5")
    assert refused.returncode == 2
    assert "trainer.lr" in refused.stderr
    assert "out=FOLDER" in refused.stderr
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before


def locked(out: Path) -> bool:
    """Whether a process holds the run's lock."""
    try:
        with (out / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


@pytest.mark.process
def test_a_folder_in_use_is_refused(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with start(recipe, out, "trainer.steps=100000"):  # on a busy machine the second one starts late
        deadline = time.monotonic() + 900
        while not locked(out) and time.monotonic() < deadline:
            time.sleep(0.01)
        second = run(recipe, out)
        assert second.returncode == 2
        assert "another process trains in this folder" in second.stderr


def test_the_start_that_is_kept_takes_the_place_of_a_killed_attempt(tmp_path: Path) -> None:
    class Saved:
        def save_pretrained(self, folder: Path, **options: Any) -> None:
            (folder / "whole").touch()

    for left in ("start", ".start.123.tmp"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "torn").touch()
    save_initial_weights(tmp_path, LoadedModel(Saved(), Saved(), "here"))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["start", "start/whole"]


@pytest.mark.extended
@pytest.mark.process
def test_no_room_for_a_checkpoint_leaves_the_last_one_valid(
    recipe: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    # A file-size limit stands for a full disk: the weights no longer fit, small files still do.
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -f 256; exec "$@"', "bash", *command(recipe, out, "trainer.steps=6")],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert limited.returncode == 2, limited.stderr
    assert "no space left" in limited.stderr
    assert "step-5 is still valid" in limited.stderr
    finished(recipe, out, "trainer.steps=6")
