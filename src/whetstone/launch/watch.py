"""Evaluating a run's checkpoints from outside, while it trains.

The watcher reads the run's folder and writes ``evaluations/step-N-NAME`` and one record for each step to a
file of its own beside them: ``records.jsonl``, or ``records-BENCHMARKS.jsonl``. It takes nothing from
training but cores. Killed, it goes on where it was, down to the reply. Of two records of a step the later one
holds: a run that was resumed from an earlier step writes another checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.errors import UserError, did_you_mean
from whetstone.launch.ahead import look_ahead
from whetstone.launch.display import Display
from whetstone.launch.evaluation import Evaluator, Measured
from whetstone.launch.evaluations import only_writer, pins_folder, records_file
from whetstone.launch.pins import Pins
from whetstone.launch.recipe import Recipe, load_recipe
from whetstone.launch.run_judge import run_judge
from whetstone.launch.run_lock import is_locked
from whetstone.report.metrics import MetricsWriter, read_metrics

_LOOK_EVERY_S = 0.5


def watch(
    run: Path,
    display: Display,
    *,
    extra: Callable[[Recipe], list[Measured]] | None = None,
    every: int | None = None,
    threads: int = 1,
    workers: int = 1,
    device: str | None = None,
    patience_s: float = 600.0,
    wait_s: float = 0.0,
    nice: int = 10,
    parent: int | None = None,
) -> int:
    """Evaluate the checkpoints of ``run`` as they come, until its last one, and return how many.

    On the run's own sets, or on what ``extra`` makes of its recipe. ``every`` takes steps that are a multiple
    of it instead of those of the recipe; the first and the last are always taken. ``patience_s``: end when
    nothing new has come for so long and nobody trains in the folder. ``wait_s``: for the run to begin.
    ``nice`` is added to the niceness. ``parent``: the process that started this one and whose end is its end.

    Raises UserError when there is no run within ``wait_s``, or another watcher does the same work.
    """
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), name="whetstone-parent", daemon=True).start()
    recipe = _recipe_of(run, wait_s, display)
    measured = extra(recipe) if extra else look_ahead(recipe, display.say).measured
    os.nice(nice)
    disable_progress_bar()
    torch.set_num_threads(threads or os.cpu_count() or 1)
    file = records_file(run, [m.name for m in measured] if extra else ())
    with only_writer(file, display.say), MetricsWriter(file) as records:
        done = {(record["step"], record.get("checkpoint")) for record in read_metrics(file)}
        watcher = _Watcher(
            run, recipe, measured, display, every, device or recipe.model.device, records, done
        )
        return asyncio.run(watcher.go(workers, patience_s))


def _recipe_of(run: Path, wait_s: float, display: Display) -> Recipe:
    """The recipe in the run's folder, waited for: the watcher may be begun first."""
    file = run / "recipe.yaml"
    if not file.exists():
        others = [other.name for other in run.parent.glob("*") if (other / "recipe.yaml").exists()]
        missing = f"{run}: no run there (no recipe.yaml){did_you_mean(run.name, others)}"
        if wait_s:
            display.say(f"{missing}; waiting {wait_s:g} s for one to begin")
        deadline = time.monotonic() + wait_s
        while not file.exists():
            if time.monotonic() >= deadline:
                raise UserError(
                    f"{missing}; give the folder that `whetstone train` writes to, or --wait S for a run "
                    "that begins within so many seconds"
                )
            time.sleep(_LOOK_EVERY_S)
    return load_recipe(file)


def _end_with(parent: int) -> None:
    """End this process as Ctrl-C does once ``parent`` is gone: killed, it could not end us."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class _Watcher:
    """One watcher's state. ``done``: the checkpoints it has evaluated, by step and digest."""

    run: Path
    recipe: Recipe
    measured: Sequence[Measured]
    display: Display
    every: int | None
    device: str
    records: MetricsWriter
    done: set[tuple[int, str | None]]

    async def go(self, workers: int, patience_s: float) -> int:
        """Evaluate until the run's last checkpoint is done, or nothing comes any more."""
        count, last_news = 0, time.monotonic()
        model = self.recipe.model.model_copy(update={"device": self.device})
        engine = self.recipe.engine
        with Pins(self.run / "checkpoints", pins_folder(self.records.path), self._wanted) as pins:
            async with run_judge(self.recipe, workers) as judge:
                evaluator = Evaluator(
                    self.run, self.measured, judge, self.display, self.recipe.judge.minimum_tier
                )
                while True:
                    pins.look()
                    if waiting := pins.waiting():
                        pin = waiting[0]
                        record = await evaluator.saved(pin.step, pin.folder, model, engine, digest=pin.digest)
                        self.records.write(record)
                        self.done.add((pin.step, pin.digest))
                        pins.remove(pin)
                        count, last_news = count + 1, time.monotonic()
                    elif self._finished() or self._over(last_news, patience_s):
                        return count
                    else:
                        await asyncio.sleep(_LOOK_EVERY_S)

    def _wanted(self, step: int, digest: str) -> bool:
        steps = self.recipe.trainer.steps
        if self.every is None:
            due = self.recipe.evaluation.due(step, last=step == steps)
        else:
            due = step in (0, steps) or step % self.every == 0
        return due and (step, digest) not in self.done

    def _finished(self) -> bool:
        """Whether the run's last checkpoint was evaluated; a resumed run may have moved it."""
        self.recipe = load_recipe(self.run / "recipe.yaml")
        last = self.recipe.trainer.steps
        return (self.run / "checkpoints" / f"step-{last}").exists() and any(s == last for s, _ in self.done)

    def _over(self, last_news: float, patience_s: float) -> bool:
        if time.monotonic() - last_news < patience_s or is_locked(self.run):
            return False
        self.display.say(
            f"{self.run}: nothing new for {patience_s:.0f} s, and nobody trains there; run the same command "
            "again when training goes on"
        )
        return True
