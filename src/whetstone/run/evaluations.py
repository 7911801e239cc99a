"""The folder ``evaluations`` of a run: its record files, their writers, and the checkpoints they wait for."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.run_lock import is_file_locked
from whetstone.evaluate.results import PASS_1, REWARD
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


def records_file(run: Path, benchmarks: Sequence[str] = ()) -> Path:
    """Return the file for records of a process that evaluates checkpoints on own sets, or on benchmarks."""
    name = f"records-{'+'.join(benchmarks)}.jsonl" if benchmarks else "records.jsonl"
    return run / "evaluations" / name


def is_due(recipe: Recipe, step: int, every: int | None) -> bool:
    """Return whether a step is evaluated.

    every: evaluate the multiples of this number, and the first and last step; None: the steps of the recipe.
    """
    last = recipe.trainer.steps
    if every is None:
        return recipe.evaluation.due(step, last=step == last)
    return step in (0, last) or step % every == 0


def pending_steps(run: Path, recipe: Recipe, steps: Collection[int]) -> set[int]:
    """Return those of ``steps`` that another process still has to evaluate. Training keeps their checkpoints.

    The other processes are that of ``evaluation.process: separate``, and each running watcher.
    """
    writers = _running_writers(run)
    if recipe.evaluation.process == "separate":
        writers.setdefault(records_file(run), None)
    pending: set[int] = set()
    for file, every in writers.items():
        done = {record["step"] for record in read_metrics(file)} if file.exists() else set[int]()
        pending |= {step for step in steps if step not in done and is_due(recipe, step, every)}
    return pending


def checkpoint_digest(checkpoint: Path) -> str:
    """Return a digest of the model of a checkpoint. Two checkpoints of one step can differ.

    Raises FileNotFoundError.
    """
    files: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
    # Torch writes the time into the trainer's files, so they differ for the same weights.
    model = {name: entry for name, entry in files.items() if name.split("/")[0] not in _TRAINER_FILES}
    return hashlib.sha256(json.dumps(model).encode()).hexdigest()[:16]


@contextmanager
def sole_writer(records: Path, log: Callable[[str], None], every: int | None = None) -> Generator[None]:
    """Lock these records for this process, waiting for a short time for a process that is about to end.

    every: the steps that this process evaluates, see :func:`is_due`.

    Raises UserError, naming the other process, if it continues.
    """
    records.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(records.with_name(f".{records.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        _lock(handle, records, log)
        # The lock file names the process for messages, and its steps for training.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {every or ''}".encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, records: Path, log: Callable[[str], None]) -> None:
    deadline, logged = time.monotonic() + _TERMINATE_S, False
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = os.pread(handle, 40, 0).decode().partition(" ")[0]
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
    for file in evaluations.glob("records*.jsonl"):
        if later or any(record["step"] > step for record in read_metrics(file)):
            with sole_writer(file, log), MetricsWriter(file) as records:
                records.truncate_after(step)
    for folder in later:
        shutil.rmtree(folder)


def _running_writers(run: Path) -> dict[Path, int | None]:
    """Return the records that a process is writing now, with the steps that it evaluates (:func:`is_due`)."""
    found: dict[Path, int | None] = {}
    for lock in (run / "evaluations").glob(".records*.jsonl.lock"):
        if is_file_locked(lock):
            _, _, every = lock.read_text().partition(" ")
            found[lock.with_name(lock.name[1:].removesuffix(".lock"))] = int(every) if every else None
    return found


def check_best(recipe: Recipe) -> None:
    """Raise UserError if ``trainer.keep_best`` names a result that the run does not measure."""
    metric, evaluation = recipe.trainer.keep_best, recipe.evaluation
    plans = {"train": evaluation.k} if evaluation.train_problems else {}
    plans |= {"heldout": evaluation.k} if recipe.data.heldout is not None else {}
    for planned in evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
        plans[planned.entry.title] = planned.plan.k
    # Which of them an environment reports is known after the first evaluation.
    known = [
        f"{name}/{estimate}"
        for name, ks in plans.items()
        for estimate in (*(f"pass@{k}" for k in sorted({1, *ks})), REWARD)
    ]
    if metric is not None and metric not in known:
        available = f"there are {', '.join(known)}" if known else "the run evaluates nothing"
        raise UserError(
            f"`trainer.keep_best`: this run does not measure `{metric}`{did_you_mean(metric, known)}; "
            f"{available}"
        )


def best_step(records: Mapping[int, Record], name: str) -> int | None:
    """Return the step with the highest value of a result, the first one of equals; None without a record.

    Raises UserError if the evaluations do not report the result.
    """
    values = {
        step: value for step in sorted(records) if (value := result_value(records[step], name)) is not None
    }
    if records and not values:
        set_name = name.rpartition("/")[0]
        raise UserError(
            f"`trainer.keep_best`: the evaluations do not report `{name}`, because nothing says which "
            f"replies solved their problem; set it to `{set_name}/{REWARD}` and resume the run"
        )
    return max(values, key=lambda step: values[step], default=None)


def result_value(record: Record, name: str) -> float | None:
    """Return a result such as ``heldout/reward`` of an evaluation; None if it has none."""
    set_name, _, estimate = name.rpartition("/")
    # A reward that is the same number as pass@1 is not reported.
    names = (name, f"{set_name}/{PASS_1}") if estimate == REWARD else (name,)
    return next((record[f"eval/{one}"] for one in names if f"eval/{one}" in record), None)


def steps_to_keep(
    recipe: Recipe, run: Path, records: Callable[[], Mapping[int, Record]]
) -> Callable[[list[int]], Collection[int]]:
    """Return a function that selects steps to keep: the best one, and those that are not evaluated yet."""
    name, settings = recipe.trainer.keep_best, recipe.evaluation

    def worth(steps: list[int]) -> Collection[int]:
        kept = pending_steps(run, recipe, steps)
        if name is None:
            return kept
        known = records()
        # A step that is not evaluated yet may turn out to be the best.
        kept |= {step for step in steps if settings.due(step, last=False) and step not in known}
        best = best_step({step: known[step] for step in steps if step in known}, name)
        return kept if best is None else {*kept, best}

    return worth
