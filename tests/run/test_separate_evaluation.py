"""Checkpoints evaluated by another process: the same figures, and training that does not notice."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.run.tiny_recipe import finished, run, start, timeless, write_recipe
from tests.warm_command import WarmCommand, whetstone
from whetstone.core.errors import UserError
from whetstone.evaluate.settings import EvaluationSection
from whetstone.report.metrics import MetricsWriter
from whetstone.report.run_data import read_run
from whetstone.run import evaluations
from whetstone.run.display import Display
from whetstone.run.evaluations import records_file
from whetstone.run.recipe import load_recipe
from whetstone.run.separate_evaluation import SeparateEvaluation

pytestmark = pytest.mark.process

EVERY_TWO = ("evaluation.every=2", "trainer.steps=4")


def records(file: Path) -> dict[int, dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {
        r["step"]: {k: v for k, v in r.items() if k.startswith("eval/")} for r in lines if r["kind"] == "eval"
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same recipe, evaluated inline and by a process of its own."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = write_recipe(folder)
    for name in ("inline", "separate"):
        keep = f"trainer.keep_checkpoints={3 if name == 'inline' else 1}"
        done = finished(recipe, folder / name, *EVERY_TWO, keep, f"evaluation.process={name}")
        assert "held-out" in done.stdout
    return folder / "inline", folder / "separate"


@pytest.mark.extended
def test_training_is_the_same_to_the_byte(runs: tuple[Path, Path]) -> None:
    inline, separate = (timeless(folder / "metrics.jsonl") for folder in runs)
    assert [line for line in inline if '"eval"' not in line] == separate
    assert len(separate) == 4


def test_its_figures_are_those_of_an_evaluation_between_steps(runs: tuple[Path, Path]) -> None:
    inline, separate = runs
    expected = records(inline / "metrics.jsonl")
    assert sorted(expected) == [0, 2, 4]
    assert records(separate / "evaluations" / "records.jsonl") == expected
    shown = read_run(separate).evals
    assert [record["step"] for record in shown] == [0, 2, 4]


def test_evaluated_checkpoints_are_removed(runs: tuple[Path, Path]) -> None:
    """Training kept pending checkpoints until they were evaluated, and removed them then."""
    _, separate = runs
    assert [path.name for path in (separate / "checkpoints").iterdir()] == ["step-4"]


def go_on_inline(folder: Path, tmp_path: Path) -> str:
    """Resume a run for one more step, evaluating between steps; what it says."""
    one_more = ("evaluation.every=2", "trainer.steps=5", "evaluation.process=inline")
    done = finished(write_recipe(tmp_path), folder, *one_more)
    return done.stdout


def forget_start(folder: Path) -> None:
    """Remove whatever tells of an evaluation of step 0."""
    for file in (folder / "metrics.jsonl", folder / "evaluations" / "records.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        file.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] > 0))
    for path in (folder / "evaluations").glob("step-0-*"):
        shutil.rmtree(path)


@pytest.mark.extended
def test_a_run_that_goes_on_inline_keeps_the_baseline_of_the_other_process(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[1], folder)
    names = [f"evaluations/step-0-{name}/samples.jsonl" for name in ("train", "heldout")]
    baseline = [(folder / name).read_bytes() for name in names]
    go_on_inline(folder, tmp_path)
    assert [(folder / name).read_bytes() for name in names] == baseline
    assert list(records(folder / "metrics.jsonl")) == [5]
    shown = {record["step"]: record for record in read_run(folder).evals}
    assert list(shown) == [0, 2, 4, 5]
    pass_at_1 = records(runs[0] / "metrics.jsonl")[0]["eval/heldout/pass@1"]
    assert shown[0]["eval/heldout/pass@1"] == pass_at_1


@pytest.mark.extended
def test_a_missing_first_evaluation_is_reported(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[1], folder)
    forget_start(folder)
    said = go_on_inline(folder, tmp_path)
    assert "there is no evaluation of step 0 to compare with" in said
    assert list(records(folder / "metrics.jsonl")) == [5]
    assert not list((folder / "evaluations").glob("step-0-*"))


def test_a_killed_watcher_resumes_with_the_same_results(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """The run is over, so its one checkpoint is evaluated and the process ends."""
    folder = tmp_path / "run"
    shutil.copytree(runs[1], folder)
    file, samples = records_file(folder), folder / "evaluations" / "step-4-heldout" / "samples.jsonl"
    expected = records(runs[1] / "evaluations" / "records.jsonl")[4]
    shutil.rmtree(folder / "evaluations")
    command = ["eval", "watch", str(folder)]
    deadline = time.monotonic() + 120
    with WarmCommand(*command) as process:
        while not (samples.exists() and samples.stat().st_size) and time.monotonic() < deadline:
            assert process.running
            time.sleep(0.002)
        process.kill()
    assert samples.read_bytes()
    assert records(file) == {}
    done = whetstone(*command)
    assert done.returncode == 0, done.stderr
    assert "checkpoints evaluated: 1" in done.stdout
    assert records(file) == {4: expected}
    assert "checkpoints evaluated: 0" in whetstone(*command).stdout


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.extended
def test_the_watcher_of_a_killed_run_ends_and_the_next_goes_on(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    recipe, folder = write_recipe(tmp_path), tmp_path / "run"
    settings = (*EVERY_TWO, "trainer.keep_checkpoints=1", "evaluation.process=separate")
    lock = folder / "evaluations" / ".records.jsonl.lock"
    deadline = time.monotonic() + 900
    with start(recipe, folder, *settings) as training:
        while not (lock.exists() and lock.read_text()) and time.monotonic() < deadline:
            assert training.running
            time.sleep(0.005)
        training.kill()
    watcher = int(lock.read_text().split()[0])
    finished(recipe, folder, *settings)
    assert ended(watcher)
    assert records(folder / "evaluations" / "records.jsonl") == records(runs[0] / "metrics.jsonl")


@pytest.mark.extended
def test_evaluations_of_repeated_steps_are_deleted(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """The run went to step 4, was evaluated there by two processes, and goes on from step 2."""
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    shutil.rmtree(folder / "checkpoints" / "step-4")
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    evaluated = [line for line in lines if json.loads(line)["kind"] == "eval"]
    records_file(folder).write_bytes(b"".join(evaluated))
    finished(write_recipe(tmp_path), folder, "evaluation.every=2", "trainer.steps=3")
    assert list(records(records_file(folder))) == [0, 2]
    assert not list((folder / "evaluations").glob("step-4-*"))
    assert [record["step"] for record in read_run(folder).evals] == [0, 2, 3]


def test_records_that_another_process_writes_are_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "_TERMINATE_S", 0.0)
    file, said = evaluations.records_file(tmp_path), list[str]()
    with evaluations.sole_writer(file, said.append), MetricsWriter(file) as written:
        written.write({"step": 4, "kind": "eval"})
        evaluations.drop_evaluations_after(tmp_path, 4, said.append)
        with pytest.raises(UserError, match=rf"process {os.getpid()} evaluates .* or stop it"):
            evaluations.drop_evaluations_after(tmp_path, 3, said.append)
    assert said
    evaluations.drop_evaluations_after(tmp_path, 3, said.append)
    assert records(file) == {}


def test_training_keeps_checkpoints_that_are_not_evaluated_yet(tmp_path: Path) -> None:
    settings = ["evaluation.every=4", "trainer.checkpoint_every=2", "trainer.steps=12"]
    inline = load_recipe(write_recipe(tmp_path), settings)
    separate = load_recipe(write_recipe(tmp_path), [*settings, "evaluation.process=separate"])
    steps = [0, 2, 4, 6, 8, 10, 12]
    assert evaluations.pending_steps(tmp_path, inline, steps) == set()
    assert evaluations.pending_steps(tmp_path, separate, steps) == {0, 4, 8, 12}
    records_file(tmp_path).parent.mkdir()
    with MetricsWriter(records_file(tmp_path)) as written:
        written.write({"step": 4, "kind": "eval"})
    assert evaluations.pending_steps(tmp_path, separate, steps) == {0, 8, 12}


def test_an_interval_between_checkpoints_is_refused(tmp_path: Path) -> None:
    odd = run(write_recipe(tmp_path), tmp_path / "run", "evaluation.process=separate")
    assert odd.returncode == 2
    assert "multiple of `trainer.checkpoint_every`" in odd.stderr


def test_the_evaluation_process_sees_its_own_devices(tmp_path: Path) -> None:
    with (
        Display(Console(quiet=True)) as display,
        SeparateEvaluation(tmp_path, EvaluationSection(), display, gpus="7"),
    ):
        deadline = time.monotonic() + 60.0
        said: list[list[bytes]] = []
        # A process that has just become another program shows its variables a moment later.
        while not any(b"CUDA_VISIBLE_DEVICES=7" in variables for variables in said):
            assert time.monotonic() < deadline, said
            children = Path("/proc/thread-self/children").read_text().split()
            said = [Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children]
