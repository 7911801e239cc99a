"""Evaluating a run's checkpoints from outside, while it trains.

The watcher reads the run's folder and writes ``evaluations/step-N-NAME`` and one record for each step to a
file of its own beside them: ``records.jsonl``, or ``records-BENCHMARKS.jsonl``. It takes nothing from
training but cores. Killed, it goes on where it was, down to the reply. Of two records of a step the later one
holds: a run that was resumed from an earlier step writes another checkpoint.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers.utils.logging import disable_progress_bar

from whetstone.engine.loading import load_model
from whetstone.engine.torch_engine import TorchEngine
from whetstone.errors import UserError
from whetstone.evaluate.benchmarks import problems_hash
from whetstone.evaluate.folder import EvaluationFolder, holds
from whetstone.evaluate.results import Evaluation
from whetstone.judge import AsyncJudge
from whetstone.launch.display import Display
from whetstone.launch.evaluation import Measured, evaluate_step, evaluation_plan
from whetstone.launch.pins import Pin, Pins, pins_folder
from whetstone.launch.problem_sets import evaluation_sets, problem_sets
from whetstone.launch.records import eval_record, records_file
from whetstone.launch.run_dir import is_locked
from whetstone.recipe import Recipe, load_recipe
from whetstone.report.metrics import MetricsWriter, Record, read_metrics

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
    nice: int = 10,
) -> int:
    """Evaluate the checkpoints of ``run`` as they come, until its last one, and return how many.

    On the run's own sets, or on what ``extra`` makes of its recipe. ``every`` takes steps that are a multiple
    of it instead of those of the recipe; the first and the last are always taken. ``patience_s``: end when
    nothing new has come for so long and nobody trains in the folder. ``nice`` is added to the niceness.

    Raises UserError when there is no run within ``patience_s``, or another watcher does the same work.
    """
    recipe = _recipe_of(run, patience_s)
    measured = (extra or _own_sets)(recipe)
    os.nice(nice)
    disable_progress_bar()
    torch.set_num_threads(threads or os.cpu_count() or 1)
    records = records_file(run, [m.name for m in measured] if extra else ())
    watcher = _Watcher(run, recipe, measured, records, display, every, device or recipe.model.device)
    with _alone(run, records), MetricsWriter(records) as watcher.records:
        judge = AsyncJudge(
            workers=workers,
            minimum_tier=recipe.judge.minimum_tier,
            stop_at_first_failure=recipe.workflow.reward == "all",
            fork_per_case=recipe.judge.fork_per_case,
        )
        return asyncio.run(watcher.go(judge, patience_s))


def _own_sets(recipe: Recipe) -> list[Measured]:
    plan = evaluation_plan(recipe)
    sets = evaluation_sets(recipe, problem_sets(recipe))
    return [Measured(name, problems, recipe.workflow, plan) for name, problems in sets.items()]


def _recipe_of(run: Path, patience_s: float) -> Recipe:
    """The recipe in the run's folder, waited for."""
    file = run / "recipe.yaml"
    deadline = time.monotonic() + patience_s
    while not file.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"{run}: no run there after {patience_s:.0f} s (no recipe.yaml); give the folder that "
                "`whetstone train` writes to, or wait longer with --patience"
            )
        time.sleep(_LOOK_EVERY_S)
    return load_recipe(file)


@contextmanager
def _alone(run: Path, records: Path) -> Generator[None]:
    """One watcher for each file of records."""
    records.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(records.with_name(f".{records.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{run}: another process evaluates the same checkpoints; wait for it") from None
        yield
    finally:
        os.close(handle)


class _Watcher:
    """One watcher's state: which checkpoints it has done, by step and digest."""

    records: MetricsWriter

    def __init__(
        self,
        run: Path,
        recipe: Recipe,
        measured: Sequence[Measured],
        records_path: Path,
        display: Display,
        every: int | None,
        device: str,
    ) -> None:
        self._run = run
        self._recipe = recipe
        self._measured = measured
        self._display = display
        self._every = every
        self._device = device
        self._records_path = records_path
        there = read_metrics(records_path) if records_path.exists() else []
        self._done = {(record["step"], record.get("checkpoint")) for record in there}

    async def go(self, judge: AsyncJudge, patience_s: float) -> int:
        """Evaluate until the run's last checkpoint is done, or nothing comes any more."""
        count, last_news = 0, time.monotonic()
        with Pins(self._run / "checkpoints", pins_folder(self._records_path), self._wanted) as pins:
            async with judge:
                while True:
                    pins.look()
                    waiting = pins.waiting()
                    if waiting:
                        await self._evaluate(waiting[0], judge)
                        pins.remove(waiting[0])
                        count, last_news = count + 1, time.monotonic()
                    elif self._finished() or self._over(last_news, patience_s):
                        return count
                    else:
                        await asyncio.sleep(_LOOK_EVERY_S)

    def _wanted(self, step: int, digest: str) -> bool:
        steps = self._recipe.trainer.steps
        if self._every is None:
            due = self._recipe.evaluation.due(step, last=step == steps)
        else:
            due = step in (0, steps) or step % self._every == 0
        return due and (step, digest) not in self._done

    def _finished(self) -> bool:
        """Whether the run's last checkpoint was evaluated; a resumed run may have moved it."""
        self._recipe = load_recipe(self._run / "recipe.yaml")
        last = self._recipe.trainer.steps
        return (self._run / "checkpoints" / f"step-{last}").exists() and any(s == last for s, _ in self._done)

    def _over(self, last_news: float, patience_s: float) -> bool:
        if time.monotonic() - last_news < patience_s or is_locked(self._run):
            return False
        self._display.say(
            f"{self._run}: nothing new for {patience_s:.0f} s, and nobody trains there; run the same command "
            "again when training goes on"
        )
        return True

    async def _evaluate(self, pin: Pin, judge: AsyncJudge) -> None:
        start = time.perf_counter()
        loaded = load_model(str(pin.folder), dtype=self._recipe.model.dtype, device=self._device)
        engine = TorchEngine(loaded.model.requires_grad_(False), loaded.tokenizer)
        evaluations: dict[str, Evaluation] = {}
        try:
            for measured in self._measured:
                evaluations[measured.name] = await evaluate_step(
                    measured,
                    pin.step,
                    self._folder(measured, pin),
                    engine=engine,
                    tokenizer=loaded.tokenizer,
                    judge=judge,
                    display=self._display,
                )
        finally:
            await engine.close()
        record: Record = eval_record(pin.step, evaluations, time.perf_counter() - start)
        self.records.write({**record, "checkpoint": pin.digest})
        self._done.add((pin.step, pin.digest))

    def _folder(self, measured: Measured, pin: Pin) -> EvaluationFolder:
        """The step's folder; replies of another checkpoint of the same step are dropped."""
        content = {
            "checkpoint": {"step": pin.step, "digest": pin.digest},
            "problems_sha256": problems_hash(measured.problems),
            "sampling": measured.plan,
            "workflow": measured.settings.model_dump(mode="json"),
        }
        manifest: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(content))
        folder = self._run / "evaluations" / f"step-{pin.step}-{measured.name}"
        return EvaluationFolder(folder, manifest, restart=not holds(folder, manifest))
