"""Evaluates a run's checkpoints in a separate process while the run trains: ``whetstone eval watch``.

The watcher reads the run's folder and writes ``evaluations/step-N-NAME``, and one record per step to its own
file ``records.jsonl``. It shares only CPU cores with training. Training keeps a checkpoint until the watcher
has evaluated it. After a kill a watcher resumes at the last reply.
Of two records of a step the later one counts, because a resumed run writes another checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.run_lock import is_locked
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import load_model
from whetstone.engine.settings import SERVERS
from whetstone.evaluate.settings import EvaluationSection
from whetstone.report.metrics import MetricsWriter, Record, read_metrics
from whetstone.run.display import Display
from whetstone.run.evaluation import EvaluationSet, Evaluator
from whetstone.run.evaluations import checkpoint_digest, is_due, records_file, sole_writer
from whetstone.run.initial_model import with_chat_settings
from whetstone.run.prepared_run import preflight
from whetstone.run.recipe import Recipe, load_recipe
from whetstone.run.run_judge import run_judge

_POLL_S = 0.5
_TERMINATE_S = 10.0
# Training has priority for the CPU cores.
_NICENESS = 10
# Training uses the other cores.
_JUDGE_WORKERS = 1


class SeparateEvaluation:
    """Starts the watcher of a run that trains in this process. A context manager.

    It is ``whetstone eval watch`` in a new interpreter, so no torch state is forked. Its output goes to
    ``logs/evaluation.log``. It ends with the context, and also if this process is killed. Its failure is
    reported and does not end the run.
    """

    def __init__(self, run: Path, settings: EvaluationSection, display: Display, *, gpus: str = "") -> None:
        """``gpus``: the devices that the process sees, as in CUDA_VISIBLE_DEVICES; empty: those of this
        process."""
        self._run = run
        self._settings = settings
        self._display = display
        self._gpus = gpus
        self._log = run / "logs" / "evaluation.log"

    def __enter__(self) -> SeparateEvaluation:
        self._log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "whetstone", "eval", "watch", str(self._run)]
        command += ["--threads", str(self._settings.threads), "--parent", str(os.getpid())]
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": self._gpus} if self._gpus else {})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            # SIGTERM lets it finish its current line. It resumes at the next start of the run.
            self._process.terminate()
            try:
                self._process.wait(_TERMINATE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    async def wait_for(self, step: int) -> None:
        """Wait until the checkpoint of ``step`` is evaluated, the process has ended, or the wait is too
        long."""
        start = time.monotonic()
        self._display.begin(f"waiting for the evaluation of step {step}", 1)
        while self._process.poll() is None:
            if time.monotonic() - start > self._settings.wait_s:
                self._display.log(
                    f"the evaluation of step {step} was not done within `evaluation.wait_s` = "
                    f"{self._settings.wait_s:g} s; `whetstone eval watch {self._run}` continues it"
                )
                return
            await asyncio.sleep(_POLL_S)
        if self.record(step) is None:
            self._display.log(
                f"the evaluation process ended with status {self._process.returncode} before it finished "
                f"step {step}; see {self._log}. `whetstone eval watch {self._run}` continues it"
            )
        else:
            self._display.end()

    def record(self, step: int) -> Record | None:
        """Return the latest record of a step, or None."""
        file = records_file(self._run)
        found = [r for r in read_metrics(file) if r["step"] == step] if file.exists() else []
        return found[-1] if found else None


def watch(run: Path, display: Display, *, threads: int = 1, parent: int | None = None) -> int:
    """Evaluate the checkpoints of ``run`` on its own sets as they appear, and return how many.

    It ends after the run's last checkpoint, or when all are evaluated and no process trains in the folder.
    threads: of torch; 0: one per core. parent: the process that started this one, which ends with it.

    Raises UserError if there is no run, or another watcher does the same work.
    """
    if parent is not None:
        threading.Thread(
            target=_exit_with_parent, args=(parent,), name="whetstone-parent", daemon=True
        ).start()
    recipe = _recipe_of(run)
    sets = preflight(recipe, display.log).measured
    os.nice(_NICENESS)
    disable_progress_bar()
    torch.set_num_threads(threads or os.cpu_count() or 1)
    file = records_file(run)
    with sole_writer(file, display.log), MetricsWriter(file) as records:
        done = {(record["step"], record.get("checkpoint")) for record in read_metrics(file)}
        watcher = _Watcher(run, recipe, sets, display, records, done)
        return asyncio.run(watcher.run_until_done())


def _recipe_of(run: Path) -> Recipe:
    file = run / "recipe.yaml"
    if not file.exists():
        others = [other.name for other in run.parent.glob("*") if (other / "recipe.yaml").exists()]
        raise UserError(
            f"{run}: no run there (no recipe.yaml){did_you_mean(run.name, others)}; give the folder that "
            "`whetstone train` writes to"
        )
    return load_recipe(file)


def _exit_with_parent(parent: int) -> None:
    """End this process like Ctrl-C does once ``parent`` is gone. A killed parent could not stop it."""
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class _Watcher:
    """The state of a watcher. ``done``: the evaluated checkpoints, by step and digest."""

    run: Path
    recipe: Recipe
    measured: Sequence[EvaluationSet]
    display: Display
    records: MetricsWriter
    done: set[tuple[int, str | None]]

    async def run_until_done(self) -> int:
        """Evaluate until the run's last checkpoint is done, or no process trains."""
        count = 0
        async with run_judge(self.recipe, _JUDGE_WORKERS) as judge:
            tier = self.recipe.judge.minimum_tier
            evaluator = Evaluator(self.run, self.measured, judge, self.display, tier)
            while True:
                # Training saves its last checkpoint before it releases the folder.
                trains = is_locked(self.run)
                if pending := self._pending():
                    step, digest, folder = pending[0]
                    self.records.write(await self._evaluate(evaluator, step, folder, digest))
                    self.done.add((step, digest))
                    count += 1
                elif self._finished() or not trains:
                    return count
                else:
                    await asyncio.sleep(_POLL_S)

    async def _evaluate(self, evaluator: Evaluator, step: int, folder: Path, digest: str) -> Record:
        """Evaluate the checkpoint in a folder with an engine of its own."""
        settings, engine = self.recipe.model, self.recipe.engine
        # A server loads the weights itself, so the device memory is left to it.
        device = "cpu" if engine.kind in SERVERS else settings.device
        loaded = load_model(str(folder), dtype=settings.dtype, device=device)
        loaded = with_chat_settings(loaded, settings)
        serving = build_engine(engine, lambda: loaded.model.requires_grad_(False), loaded.tokenizer)
        try:
            return await evaluator.evaluate_engine(step, serving, loaded.tokenizer, digest=digest)
        finally:
            await serving.close()

    def _pending(self) -> list[tuple[int, str, Path]]:
        """Return the checkpoints to evaluate: step, digest and folder, by step."""
        found: list[tuple[int, str, Path]] = []
        for folder in (self.run / "checkpoints").glob("step-*"):
            number = folder.name.removeprefix("step-")
            # Training may remove a checkpoint at any time.
            with contextlib.suppress(FileNotFoundError):
                if number.isdigit() and is_due(self.recipe, int(number)):
                    found.append((int(number), checkpoint_digest(folder), folder))
        return sorted(one for one in found if one[:2] not in self.done)

    def _finished(self) -> bool:
        """Return whether the run's last checkpoint was evaluated; a resumed run may have changed its last
        step."""
        # The file is read again: a resumed run may have another number of steps.
        self.recipe = load_recipe(self.run / "recipe.yaml")
        last = self.recipe.trainer.steps
        return (self.run / "checkpoints" / f"step-{last}").exists() and any(s == last for s, _ in self.done)
