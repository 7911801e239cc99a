"""The training loop: get a batch, train on it, publish the new weights, call the hooks.

It handles batches, metrics and versions. Prompts, judging and files are behind the flow and the hooks. The
flow and the weight sink decide whether sampling and training alternate or run concurrently. Each iteration
turns weight version ``step - 1`` into version ``step``.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Protocol

from whetstone.core.sample import Batch
from whetstone.rollout.protocol import Flow, FlowBatch


class StepTrainer(Protocol):
    """The loop's interface of a trainer."""

    @property
    def version(self) -> int:
        """The version of its weights: the number of steps made."""
        ...

    def step(self, batch: Batch) -> dict[str, float]:
        """Train on a batch (an empty one only changes the version); return metrics."""
        ...

    def weights(self) -> Iterable[tuple[str, object]]:
        """Return name and tensor of every weight, in the form that engines accept."""
        ...


class Hooks(Protocol):
    """Callbacks around the steps: files, evaluation, a display."""

    def on_step_begin(self, version: int) -> None:
        """Called before a step begins with the weights of ``version``. Raises RunDrained to end the loop."""
        ...

    def on_phase(self, name: str) -> None:
        """Called when the loop enters ``generate``, ``train`` or ``sync``."""
        ...

    async def on_step_end(
        self, step: int, drawn: FlowBatch, metrics: dict[str, float], seconds: dict[str, float]
    ) -> None:
        """Called when step ``step`` is complete and its weights are served."""
        ...


class WeightSink(Protocol):
    """The receiver of new weights: an engine in this process, or replicas in others."""

    @property
    def version(self) -> int:
        """The version of the served weights; negative before there are any."""
        ...

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """Serve these weights from now on. They have been read when this returns."""
        ...


class RunDrained(Exception):
    """The run was asked to stop after the current step, so there will be no further one."""


class _StepClock:
    """Wall time of the parts of one step, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Measure one part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start


async def train_steps(
    trainer: StepTrainer, flow: Flow, sink: WeightSink, hooks: Hooks, *, steps: int
) -> None:
    """Run steps until the trainer's version is ``steps``. Raises RunDrained if the flow or a hook does."""
    while trainer.version < steps:
        hooks.on_step_begin(trainer.version)
        clock = _StepClock()
        with clock.part("step"):
            hooks.on_phase("generate")
            with clock.part("generate"):
                drawn = await flow.next_batch(trainer.version)
            hooks.on_phase("train")
            with clock.part("train"):
                # On this thread, because torch's thread count is per thread, and no other task runs now.
                metrics = trainer.step(drawn.batch)
            hooks.on_phase("sync")
            with clock.part("sync"):
                await sink.update_weights(trainer.weights(), trainer.version)
        await hooks.on_step_end(trainer.version, drawn, metrics, clock.seconds)
