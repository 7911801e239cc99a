"""The loop of training: have a batch, learn from it, serve the new weights, keep what is needed.

It sees batches, metrics and versions; prompts, judging and files are behind the flow and the hooks. Whether
sampling takes turns with learning or goes on beside it depends on the flow, and on who serves the weights.
One step of the loop makes weight version ``step`` out of version ``step - 1``.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Protocol

from whetstone.flow.flow import Flow, FlowBatch
from whetstone.sample import Batch


class StepTrainer(Protocol):
    """What the loop needs of a trainer."""

    @property
    def version(self) -> int:
        """The version of its weights: the number of steps it has made."""
        ...

    def step(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch (an empty one changes nothing but the version); returns metrics."""
        ...

    def weights(self) -> Iterable[tuple[str, object]]:
        """Name and tensor of every weight, as an engine takes them."""
        ...


class Hooks(Protocol):
    """What happens around the steps: files, evaluation, a display."""

    def phase(self, name: str) -> None:
        """The loop enters ``generate``, ``train`` or ``sync``."""
        ...

    async def stepped(
        self, step: int, drawn: FlowBatch, metrics: dict[str, float], seconds: dict[str, float]
    ) -> None:
        """Step ``step`` is complete and its weights are served."""
        ...


class Server(Protocol):
    """Who has the weights served: an engine of this process, or replicas of others."""

    @property
    def version(self) -> int:
        """The version of the weights that are served; below 0 before there are any."""
        ...

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """Serve these from now on. They have been read when this returns."""
        ...


class Drained(Exception):
    """There will be no further batch: whoever runs this was told to end, after the step that it was in."""


class StepClock:
    """Wall seconds of the parts of one step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Time one part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start


async def train_steps(trainer: StepTrainer, flow: Flow, server: Server, hooks: Hooks, *, steps: int) -> None:
    """Run steps until the trainer's version is ``steps``."""
    while trainer.version < steps:
        clock = StepClock()
        with clock.part("step"):
            hooks.phase("generate")
            with clock.part("generate"):
                drawn = await flow.next_batch(trainer.version)
            hooks.phase("train")
            with clock.part("train"):
                # On this thread: torch keeps its thread count per thread, and nothing else is awaited now.
                metrics = trainer.step(drawn.batch)
            hooks.phase("sync")
            with clock.part("sync"):
                await server.update_weights(trainer.weights(), trainer.version)
        await hooks.stepped(trainer.version, drawn, metrics, clock.seconds)
