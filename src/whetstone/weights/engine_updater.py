"""Keeps an engine at the newest version: fetched and verified during generation, written between two
steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from whetstone.core.errors import UserError
from whetstone.engine.engine import Engine
from whetstone.weights.manifest import Manifest, VersionId
from whetstone.weights.replica import (
    ModelMismatch,
    PreparedVersion,
    VersionRejected,
    WeightReplica,
    merge_patches,
)
from whetstone.weights.source import VersionEvicted, WeightSource
from whetstone.weights.streams import CorruptData

# Plans are made again when a version is evicted during its transfer.
_MAX_PLANS = 8


@dataclass(frozen=True)
class AppliedVersion:
    """A version that an engine now serves.

    kind: how it was transferred. fetched_bytes: bytes received. changed_elements: elements written.
    prepare_s: seconds of fetching and verifying, during generation. pause_s: seconds in which the engine did
    not generate: as reported by the engine (servers), or from its first access to the new weights to the end
    of writing.
    """

    number: int
    kind: Literal["full", "delta"]
    fetched_bytes: int
    changed_elements: int
    prepare_s: float
    pause_s: float


@runtime_checkable
class _ReportsPause(Protocol):
    """An engine that reports how long its last update interrupted generation."""

    pause_s: float


class EngineUpdater:
    """Keeps ``engine`` at the newest version of ``source``.

    replica: its tensors are those that the engine generates with, if they are in host memory. Otherwise they
    are ``copies``: versions are applied to the copies, and the engine gets the changes, or each whole tensor
    if it may have another version than the copies had.
    """

    def __init__(
        self, engine: Engine, replica: WeightReplica, source: WeightSource, *, copies: bool = False
    ) -> None:
        if "tensors" not in engine.capabilities.weights:
            raise UserError("this engine takes new weights as a folder only; it cannot follow versions")
        self._engine, self._replica, self._source = engine, replica, source
        self._copies = copies
        self._engine_version: VersionId | None = None
        """The version in the engine, if its tensors are not the replica's own."""

    async def update(self, wait_s: float = 0.0) -> list[AppliedVersion]:
        """Update to the newest version, and return the steps; empty if there is none within ``wait_s``.

        Copies are updated in one step. Raises PublisherUnreachable, and VersionRejected for a version that
        cannot be applied even in full. The engine then serves its previous version, or the last step that
        succeeded.
        """
        applied: list[AppliedVersion] = []
        for _ in range(_MAX_PLANS):
            try:
                plan = await asyncio.to_thread(self._source.plan, self._replica.version_id, wait_s)
            except CorruptData as error:
                raise VersionRejected(f"the published data is not a version of weights: {error}") from None
            try:
                if self._copies:
                    applied += await self._apply_copies(plan)
                else:
                    for manifest in plan:
                        applied.append(await self._apply(manifest))
                return applied
            except VersionEvicted:
                wait_s = 0.0
            except ModelMismatch:
                raise
            except VersionRejected:
                if self._replica.version_id is None or not plan or plan[0].base is None:
                    raise
                # The local tensors may be damaged. Without a version id the next plan has a full copy.
                self._replica.version_id = None
        raise VersionRejected("versions of the weights are replaced faster than they can be fetched")

    async def _apply(self, manifest: Manifest) -> AppliedVersion:
        began = time.perf_counter()
        prepared = await asyncio.to_thread(self._replica.prepare, manifest, self._source.fetch)
        ready = time.perf_counter()
        weights = _TimedWeights(prepared.patches)
        paused = await self._update(weights, manifest.number)
        self._replica.commit(prepared)
        return _applied_version([prepared], manifest.number, ready - began, paused)

    async def _apply_copies(self, plan: list[Manifest]) -> list[AppliedVersion]:
        began = time.perf_counter()
        before, steps = self._replica.version_id, list[PreparedVersion]()
        for manifest in plan:
            prepared = await asyncio.to_thread(self._replica.prepare, manifest, self._source.fetch)
            # A failure while writing leaves tensors of no valid version, and the next plan is then a full
            # copy.
            self._replica.version_id = None
            await asyncio.to_thread(prepared.write)
            self._replica.commit(prepared)
            steps.append(prepared)
        mark = self._replica.version_id
        if mark is None or mark == self._engine_version:
            return []
        ready = time.perf_counter()
        # The engine may have another version than the copies if an earlier update failed halfway.
        incremental = bool(steps) and before is not None and before == self._engine_version
        weights = _TimedWeights(lambda: merge_patches(steps) if incremental else self._replica.tensors())
        self._engine_version = None
        paused = await self._update(weights, mark.number)
        self._engine_version = mark
        return [_applied_version(steps, mark.number, ready - began, paused)]

    async def _update(self, weights: _TimedWeights, number: int) -> float:
        """Update the engine, and return how long it paused in seconds."""
        try:
            await self._engine.update_weights(weights, number)
        except ValueError as error:
            raise VersionRejected(f"the engine does not take version {number}: {error}") from None
        if isinstance(self._engine, _ReportsPause):
            return self._engine.pause_s
        return time.perf_counter() - weights.began


def _applied_version(
    steps: Sequence[PreparedVersion], number: int, prepare_s: float, pause_s: float
) -> AppliedVersion:
    kind = "delta" if steps and all(step.manifest.base for step in steps) else "full"
    fetched, changed = sum(step.fetched for step in steps), sum(step.changed_elements for step in steps)
    return AppliedVersion(number, kind, fetched, changed, prepare_s, pause_s)


class _TimedWeights:
    """The weights of a version, with the time of the first access to them."""

    def __init__(self, read: Callable[[], Iterator[tuple[str, object]]]) -> None:
        self._read = read
        self.began = time.perf_counter()

    def __iter__(self) -> Iterator[tuple[str, object]]:
        self.began = time.perf_counter()
        return self._read()
