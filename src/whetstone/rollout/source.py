"""The order of problems: a seeded shuffle per epoch, with a position that can be saved."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

from whetstone.core.settings import stream_seed

T = TypeVar("T")


class PromptSource(Generic[T]):
    """Draws items (problems or their ids) without replacement, epoch after epoch.

    The whole state is the number of draws. A resumed run continues with the problem that the interrupted run
    would have drawn next.
    """

    def __init__(self, problems: Sequence[T], seed: int) -> None:
        if not problems:
            raise ValueError("there is no problem to draw from")
        self._problems = problems
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []
        self.drawn = 0

    def take(self, count: int) -> list[tuple[int, T]]:
        """Return the next ``count`` items, each with its draw number, which is unique in the run."""
        first = self.drawn
        self.drawn += count
        return [(draw, self.at(draw)) for draw in range(first, first + count)]

    def at(self, draw: int) -> T:
        """Return the item of a draw."""
        epoch, place = divmod(draw, len(self._problems))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = list(range(len(self._problems)))
            random.Random(stream_seed("epoch", self._seed, epoch)).shuffle(self._order)
        return self._problems[self._order[place]]
