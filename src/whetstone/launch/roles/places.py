"""Where the roles of a run are started, and how that is done on this machine."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.process import Started, role_command, start_local
from whetstone.launch.roles.whose import flow_section


class Places(Protocol):
    """Starts roles. ``words`` are those of ``whetstone role ROLE RECIPE``; ``number``: which trainer or
    replica it is, from 0."""

    def flow(self, words: Sequence[str]) -> Coroutine[Any, Any, Started]:
        """Start the flow."""
        ...

    def trainer(self, number: int, words: Sequence[str]) -> Coroutine[Any, Any, Started]:
        """Start the trainer."""
        ...

    def replica(self, number: int, words: Sequence[str]) -> Coroutine[Any, Any, Started]:
        """Start a rollout replica."""
        ...

    def close(self) -> None:
        """Let go of all that is left of them."""
        ...


class Here:
    """This machine. ``file``: the recipe."""

    def __init__(self, recipe: Recipe, file: Path) -> None:
        self._file = file
        # Of a run whose roles work beside each other each has its part of the cores; with staleness 0 they
        # take turns, and a deterministic run computes as the one in one process does.
        section = flow_section(recipe)
        each = max(
            1, (os.cpu_count() or 1) // (section.replicas + section.ranks * len(recipe.workflow.models))
        )
        self._threads = ["--threads", str(each)] if section.staleness else []
        self._gpus = section.gpus

    async def flow(self, words: Sequence[str]) -> Started:
        """See Places."""
        return await self._start("flow", words)

    async def trainer(self, number: int, words: Sequence[str]) -> Started:
        """See Places."""
        return await self._start("trainer", [*words, *self._threads, *_seen(self._gpus.trainers, number)])

    async def replica(self, number: int, words: Sequence[str]) -> Started:
        """See Places."""
        return await self._start("rollout", [*words, *self._threads, *_seen(self._gpus.replicas, number)])

    def close(self) -> None:
        """See Places."""

    async def _start(self, role: str, words: Sequence[str]) -> Started:
        return await start_local(role_command(role, self._file, words))


def _seen(gpus: Sequence[str], number: int) -> list[str]:
    """The flag for the devices of one of several processes; none where nothing is said of them."""
    return ["--gpus", gpus[number]] if gpus else []
