"""An engine that follows a publisher: fetched and verified beside generation, written between two steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from whetstone.engine.engine import Engine
from whetstone.errors import UserError
from whetstone.weights.codec import Damaged
from whetstone.weights.manifest import Manifest, Mark
from whetstone.weights.replica import Prepared, Refused, Replica, Unlike, combined
from whetstone.weights.source import Gone, Source

_PLANS = 8


@dataclass(frozen=True)
class Applied:
    """A version that an engine now serves.

    kind: how it came. fetched: bytes; changed: words written. prepare_s: fetching and verifying, beside
    generation. pause_s: for which the engine did not generate: what it says itself, as servers do, or from
    its first look at the new weights to the end of writing them.
    """

    number: int
    kind: Literal["full", "delta"]
    fetched: int
    changed: int
    prepare_s: float
    pause_s: float


@runtime_checkable
class _Pausing(Protocol):
    """An engine that knows for how long its last update kept it from generating."""

    pause_s: float


class Follower:
    """Keeps ``engine`` at the newest version of ``source``.

    replica: whose tensors are those that the engine generates with, if they lie in the memory of the host.
    Otherwise they are ``copies`` of them: versions are added up there, and the engine is given what is new,
    or each tensor whole when it may have another version than the copies had.
    """

    def __init__(self, engine: Engine, replica: Replica, source: Source, *, copies: bool = False) -> None:
        if "tensors" not in engine.capabilities.weights:
            raise UserError("this engine takes new weights as a folder only; it cannot follow versions")
        self._engine, self._replica, self._source = engine, replica, source
        self._copies = copies
        self._given: Mark | None = None
        """What the engine has, where that are not the replica's own tensors."""

    async def catch_up(self, wait_s: float = 0.0) -> list[Applied]:
        """Go to the newest version, and say by which steps; nothing if there is none within ``wait_s``.

        Copies are brought there in one step. Raises Unreachable, and Refused for a version that cannot be
        applied, even in full: then the engine serves the one that it had, or the last of the steps that
        succeeded.
        """
        applied: list[Applied] = []
        for _ in range(_PLANS):
            try:
                plan = await asyncio.to_thread(self._source.plan, self._replica.mark, wait_s)
            except Damaged as error:
                raise Refused(f"what is published is no version of weights: {error}") from None
            try:
                if self._copies:
                    applied += await self._apply_copies(plan)
                else:
                    for manifest in plan:
                        applied.append(await self._apply(manifest))
                return applied
            except Gone:
                wait_s = 0.0
            except Unlike:
                raise
            except Refused:
                if self._replica.mark is None or not plan or plan[0].base is None:
                    raise
                # What is held is not what it should be: a full copy mends it.
                self._replica.mark = None
        raise Refused("versions of the weights vanish faster than they can be fetched")

    async def _apply(self, manifest: Manifest) -> Applied:
        began = time.perf_counter()
        prepared = await asyncio.to_thread(self._replica.prepare, manifest, self._source.fetch)
        ready = time.perf_counter()
        weights = _Weights(prepared.patches)
        paused = await self._update(weights, manifest.number)
        self._replica.commit(prepared)
        return _applied([prepared], manifest.number, ready - began, paused)

    async def _apply_copies(self, plan: list[Manifest]) -> list[Applied]:
        began = time.perf_counter()
        before, steps = self._replica.mark, list[Prepared]()
        for manifest in plan:
            prepared = await asyncio.to_thread(self._replica.prepare, manifest, self._source.fetch)
            self._replica.mark = None  # while they are neither
            await asyncio.to_thread(prepared.write)
            self._replica.commit(prepared)
            steps.append(prepared)
        mark = self._replica.mark
        if mark is None or mark == self._given:
            return []
        ready = time.perf_counter()
        follows = bool(steps) and before is not None and before == self._given
        weights = _Weights(lambda: combined(steps) if follows else self._replica.tensors())
        self._given = None
        paused = await self._update(weights, mark.number)
        self._given = mark
        return [_applied(steps, mark.number, ready - began, paused)]

    async def _update(self, weights: _Weights, number: int) -> float:
        """Have the engine serve a version; for how long it paused."""
        try:
            await self._engine.update_weights(weights, number)
        except ValueError as error:
            raise Refused(f"the engine does not take version {number}: {error}") from None
        if isinstance(self._engine, _Pausing):
            return self._engine.pause_s
        return time.perf_counter() - weights.began


def _applied(steps: Sequence[Prepared], number: int, prepare_s: float, paused: float) -> Applied:
    kind = "delta" if steps and all(step.manifest.base for step in steps) else "full"
    fetched, changed = sum(step.fetched for step in steps), sum(step.changed for step in steps)
    return Applied(number, kind, fetched, changed, prepare_s, paused)


class _Weights:
    """A version as an engine takes it, and when it was first looked at."""

    def __init__(self, read: Callable[[], Iterator[tuple[str, object]]]) -> None:
        self._read = read
        self.began = time.perf_counter()

    def __iter__(self) -> Iterator[tuple[str, object]]:
        self.began = time.perf_counter()
        return self._read()
