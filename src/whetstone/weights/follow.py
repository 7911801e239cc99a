"""An engine that follows a publisher: fetched and verified beside generation, written between two steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from whetstone.engine.engine import Engine
from whetstone.errors import UserError
from whetstone.weights.codec import Damaged
from whetstone.weights.manifest import Manifest
from whetstone.weights.replica import Prepared, Refused, Replica
from whetstone.weights.source import Gone, Source

_PLANS = 8


@dataclass(frozen=True)
class Applied:
    """A version that an engine now serves.

    kind: how it came. fetched: bytes; changed: words written. prepare_s: fetching and verifying, beside
    generation. pause_s: for which the engine did not generate, from the first look at the new weights to the
    end of writing them.
    """

    number: int
    kind: Literal["full", "delta"]
    fetched: int
    changed: int
    prepare_s: float
    pause_s: float


class Follower:
    """Keeps ``engine`` at the newest version of ``source``.

    replica: whose tensors are those of the engine's model, if they lie in the memory of the host. Otherwise
    they are ``copies`` of them: the engine is then given each tensor whole the first time, and what is new
    from then on.
    """

    def __init__(self, engine: Engine, replica: Replica, source: Source, *, copies: bool = False) -> None:
        if "tensors" not in engine.capabilities.weights:
            raise UserError("this engine takes new weights as a folder only; it cannot follow versions")
        self._engine, self._replica, self._source = engine, replica, source
        self._copies, self._given = copies, False

    async def catch_up(self, wait_s: float = 0.0) -> list[Applied]:
        """Go to the newest version, and say by which steps; nothing if there is none within ``wait_s``.

        Raises Unreachable, and Refused for a version that cannot be applied, even in full: then the engine
        serves the one that it had, or the last of the steps that succeeded.
        """
        applied: list[Applied] = []
        for _ in range(_PLANS):
            try:
                plan = await asyncio.to_thread(self._source.plan, self._replica.mark, wait_s)
            except Damaged as error:
                raise Refused(f"what is published is no version of weights: {error}") from None
            try:
                for manifest in plan:
                    applied.append(await self._apply(manifest))
                return applied
            except Gone:
                wait_s = 0.0
            except Refused:
                if self._replica.mark is None or plan[0].base is None:
                    raise
                # What is held is not what it should be: a full copy mends it.
                self._replica.mark = None
        raise Refused("versions of the weights vanish faster than they can be fetched")

    async def _apply(self, manifest: Manifest) -> Applied:
        began = time.perf_counter()
        prepared = await asyncio.to_thread(self._replica.prepare, manifest, self._source.fetch)
        ready = time.perf_counter()
        if self._copies:
            self._replica.mark = None
            await asyncio.to_thread(prepared.write)
        weights = _Weights(prepared, whole=self._copies and not self._given)
        self._given = False
        try:
            await self._engine.update_weights(weights, manifest.number)
        except ValueError as error:
            raise Refused(f"the engine does not take version {manifest.number}: {error}") from None
        paused = time.perf_counter() - weights.began
        self._given = True
        self._replica.commit(prepared)
        kind = "delta" if manifest.base else "full"
        return Applied(manifest.number, kind, prepared.fetched, prepared.changed, ready - began, paused)


class _Weights:
    """A version as an engine takes it, and when it was first looked at."""

    def __init__(self, prepared: Prepared, *, whole: bool) -> None:
        self._prepared, self._whole = prepared, whole
        self.began = time.perf_counter()

    def __iter__(self) -> Iterator[tuple[str, object]]:
        self.began = time.perf_counter()
        return self._prepared.tensors() if self._whole else self._prepared.patches()
