"""The folder ``evaluations`` of a run: its record files, their writers, and the checkpoints they wait for."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.report.metrics import MetricsWriter, Record, read_metrics
from whetstone.run.recipe import Recipe

_STEP = re.compile(r"step-(\d+)-")
_TRAINER_FILES = {"trainer", "state.json"}
_POLL_S = 0.5
# Seconds that a watcher may take to end after its run was killed. It may be inside a step of its engine, on a
# busy machine.
_TERMINATE_S = 30.0


def evaluation_records(run: Path) -> dict[int, Record]:
    """Return the evaluations on a run's own sets, by step, from training or from a separate process.

    Of two records of a step in one file the later one counts. Training's record has priority over the other
    process's.
    """
    files = (records_file(run), run / "metrics.jsonl")
    records = (record for file in files if file.exists() for record in read_metrics(file))
    return {record["step"]: record for record in records if record["kind"] == "eval"}


def records_file(run: Path) -> Path:
    """Return the file for records of a process that evaluates checkpoints."""
    return run / "evaluations" / "records.jsonl"


def is_due(recipe: Recipe, step: int) -> bool:
    """Return whether a step is evaluated."""
    return recipe.evaluation.due(step, last=step == recipe.trainer.steps)


def pending_steps(run: Path, recipe: Recipe, steps: Collection[int]) -> set[int]:
    """Return those of ``steps`` that the process of ``evaluation.process: separate`` still has to evaluate.

    Training keeps their checkpoints.
    """
    if recipe.evaluation.process != "separate":
        return set()
    file = records_file(run)
    done = {record["step"] for record in read_metrics(file)} if file.exists() else set[int]()
    return {step for step in steps if step not in done and is_due(recipe, step)}


def checkpoint_digest(checkpoint: Path) -> str:
    """Return a digest of the model of a checkpoint. Two checkpoints of one step can differ.

    Raises FileNotFoundError.
    """
    files: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
    # Torch writes the time into the trainer's files, so they differ for the same weights.
    model = {name: entry for name, entry in files.items() if name.split("/")[0] not in _TRAINER_FILES}
    return hashlib.sha256(json.dumps(model).encode()).hexdigest()[:16]


@contextmanager
def sole_writer(records: Path, log: Callable[[str], None]) -> Generator[None]:
    """Lock these records for this process, waiting for a short time for a process that is about to end.

    Raises UserError, naming the other process, if it continues.
    """
    records.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(records.with_name(f".{records.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        _lock(handle, records, log)
        # The lock file names the process for messages.
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, records: Path, log: Callable[[str], None]) -> None:
    deadline, logged = time.monotonic() + _TERMINATE_S, False
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = os.pread(handle, 40, 0).decode()
            other = f"{records}: process {process} evaluates these checkpoints"
        if not logged:
            log(f"{other}; waiting up to {_TERMINATE_S:.0f} s for its end")
        if time.monotonic() > deadline:
            raise UserError(f"{other}; wait until it ends, or stop it")
        logged = True
        time.sleep(_POLL_S)


def drop_evaluations_after(run: Path, step: int, log: Callable[[str], None]) -> None:
    """Delete the evaluations of steps later than ``step``, which the run repeats.

    Raises UserError if a process still evaluates them.
    """
    evaluations = run / "evaluations"
    found = ((_STEP.match(path.name), path) for path in evaluations.glob("step-*"))
    later = [path for match, path in found if match and int(match[1]) > step]
    file = records_file(run)
    if file.exists() and (later or any(record["step"] > step for record in read_metrics(file))):
        with sole_writer(file, log), MetricsWriter(file) as records:
            records.truncate_after(step)
    for folder in later:
        shutil.rmtree(folder)
