"""Sampling with the weights of the start of a run, while those of the trainer change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from whetstone.engine.engine import Engine
from whetstone.trainer.trainer import Trainer


class StartingWeights:
    """A WeightSink whose engine serves the starting weights, version 0, except while an evaluation uses it.

    The engine serves them when it is made; an evaluation loads the trainer's, and then those in ``folder``,
    which contains the starting weights from the first step on.
    """

    def __init__(self, engine: Engine, trainer: Trainer, folder: Path) -> None:
        self._engine, self._trainer, self._folder = engine, trainer, folder

    @property
    def version(self) -> int:
        """The version of the weights that sample, which is always 0."""
        return self._engine.version

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """Leave the engine as it is."""

    @asynccontextmanager
    async def evaluation_engine(self) -> AsyncGenerator[Engine]:
        """The engine with the trainer's weights; it has the starting ones again at the end."""
        engine, trainer = self._engine, self._trainer
        if trainer.version == 0:
            yield engine
            return
        await engine.update_weights(trainer.weights(), trainer.version)
        try:
            yield engine
        finally:
            await engine.update_weights(self._folder, 0)
