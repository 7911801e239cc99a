"""The weights of a replica's engines, updated from the trainers' offers, with retries.

A version is fetched and verified during generation, and written into the engine between two steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from whetstone.core.errors import UserError
from whetstone.engine.engine import Engine
from whetstone.weights.manifest import Manifest, VersionId
from whetstone.weights.offer import FOLDER, NO_WEIGHTS, TCP, Offer
from whetstone.weights.replica import (
    ModelMismatch,
    PreparedVersion,
    VersionRejected,
    WeightReplica,
    merge_patches,
    published_tensors,
)
from whetstone.weights.settings import WeightsSection
from whetstone.weights.shared_folder import FolderSource
from whetstone.weights.source import PublisherDenied, PublisherUnreachable, VersionEvicted, WeightSource
from whetstone.weights.streams import CorruptData
from whetstone.weights.tcp_client import TcpSource

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


_RETRY_S, _LONGEST_RETRY_S = 0.5, 5.0
# A replica that could never reach its publisher gives up after so many seconds.
UNREACHABLE_S = 120.0


class SubscribedWeights:
    """The ``ReplicaWeights`` of a replica (``rollout/replica.py``) with one or more models. Call ``close``
    at the end.

        engine = build_engine(recipe.engine, lambda: loaded.model, loaded.tokenizer)
        weights = SubscribedWeights({"policy": (engine, loaded.model)}, recipe.flow.weights, token=token)
        await weights.apply("policy", offer)   # as RolloutReplica does with the flow's offers
        weights.serving["policy"]              # Offer(version=8, …)

    models: by the name under which its trainer publishes: the engine, and the model that the engine was made
    with. An engine that generates with this model on the CPU (``Capabilities.in_place``) gets new weights
    written into it. For any other engine the model is the copy in host memory to which changes are applied,
    and from which the engine is updated. log: called with applied versions and failures.

    A version is fetched and verified during generation. Replies in flight continue with it, and each token
    records its version. ``serving`` is the version that the engine generates with. If a version cannot be
    applied (damaged in transit, refused by the engine), ``serving`` is ``NO_WEIGHTS`` and the replica gets no
    prompts until a version succeeds. If a version cannot be fetched, the replica keeps its current one.
    """

    def __init__(
        self,
        models: Mapping[str, tuple[Engine, Any]],
        settings: WeightsSection,
        *,
        token: str = "",
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._models = {
            name: _Subscription(name, engine, model, settings, token)
            for name, (engine, model) in models.items()
        }

    @property
    def serving(self) -> Mapping[str, Offer]:
        """The version in use, by model."""
        return {name: followed.serving for name, followed in self._models.items()}

    async def apply(self, model: str, offer: Offer) -> None:
        """Update to the newest version, which is the offered one or a later one.

        After a failure it waits for a short time, and the flow repeats the offer because ``serving`` has not
        changed. Raises UserError for permanent failures: another model, a publisher that needs another token
        or was never reached, a stopped engine.
        """
        subscription = self._models.get(model)
        if subscription is None:
            raise ModelMismatch(
                f"weights are offered for `{model}`; this replica has {', '.join(self._models)}"
            )
        try:
            for applied in await subscription.update(offer):
                self._log(_describe_update(model, applied))
        except (PublisherUnreachable, VersionRejected) as error:
            if subscription.is_permanent(error):
                raise
            # The same failure is logged once, not at every attempt.
            if subscription.record_failure(error):
                self._log(f"retrying weights {offer.version} of {model}: {error}")
            # The flow repeats the offer at once, which without a pause would be a busy loop.
            await asyncio.sleep(subscription.retry_delay_s)

    def close(self) -> None:
        """Close connections and files."""
        for followed in self._models.values():
            followed.close()


class _Subscription:
    """The subscription of one model."""

    def __init__(self, name: str, engine: Engine, model: Any, settings: WeightsSection, token: str) -> None:
        self._engine, self._settings, self._token = engine, settings, token
        here = model.device.type == "cpu"
        tensors = published_tensors(model)
        self._copies = not (here and engine.capabilities.in_place)
        held = tensors if here else {n: t.cpu() for n, t in tensors.items()}
        self._replica = WeightReplica(held, name, threads=settings.threads, copies=self._copies)
        self._url = ""
        self._source: WeightSource | None = None
        self._updater: EngineUpdater | None = None
        self.serving = NO_WEIGHTS
        self._began = time.monotonic()
        self._reached_once = self._rejected = False
        self._failures, self._failure = 0, ""

    async def update(self, offer: Offer) -> list[AppliedVersion]:
        """Update to the newest version at the offer's URL."""
        try:
            applied = await self._updater_for(offer.url).update()
        except VersionRejected:
            self.serving, self._rejected = NO_WEIGHTS, True
            raise
        except PublisherUnreachable:
            if self._advanced():
                # Without a run id this differs from the offer, so the flow offers the remaining steps again.
                self.serving, self._reached_once = Offer(self._engine.version, offer.url), True
            raise
        number = self._engine.version
        # The number may be higher than the offered one, or lower if a resumed trainer published an old one.
        lineage = offer.run_id if number >= offer.version else ""
        self.serving = Offer(number, offer.url, lineage)
        self._reached_once, self._rejected = True, False
        self._failures, self._failure = 0, ""
        # The offered version cannot be read yet. Without a pause, the repeated offer would be a busy loop.
        if not applied and number != offer.version:
            await asyncio.sleep(_RETRY_S)
        return applied

    def is_permanent(self, error: UserError) -> bool:
        """Return whether a retry cannot help."""
        if isinstance(error, ModelMismatch):
            return True
        # A publisher that was reached before may only be restarting.
        never = not self._reached_once and isinstance(error, PublisherUnreachable)
        return never and (
            isinstance(error, PublisherDenied) or time.monotonic() - self._began > UNREACHABLE_S
        )

    def record_failure(self, error: UserError) -> bool:
        """Count a failure. Return whether it differs from the last one."""
        before, self._failure = self._failure, str(error)
        self._failures += 1
        return self._failure != before

    @property
    def retry_delay_s(self) -> float:
        """Seconds to wait before the next attempt."""
        return min(_RETRY_S * 2 ** min(self._failures - 1, 8), _LONGEST_RETRY_S)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _advanced(self) -> bool:
        """Return whether some of several steps to a version succeeded."""
        held = self._replica.version_id is not None and not self._rejected
        return held and self._engine.version != self.serving.version

    def _updater_for(self, url: str) -> EngineUpdater:
        if self._updater is None or url != self._url:
            self.close()
            self._source = self._source_at(url)
            self._updater = EngineUpdater(self._engine, self._replica, self._source, copies=self._copies)
            self._url = url
        return self._updater

    def _source_at(self, url: str) -> WeightSource:
        if url.startswith(FOLDER):
            return FolderSource(Path(url.removeprefix(FOLDER)))
        if url.startswith(TCP):
            settings = self._settings
            address = url.removeprefix(TCP)
            return TcpSource(
                address, token=self._token, streams=settings.streams, silence_s=settings.silence_s
            )
        raise ModelMismatch(
            f"`{url}` is not a URL of weights: install the same version of Whetstone on all hosts"
        )


def _describe_update(model: str, applied: AppliedVersion) -> str:
    return (
        f"weights {applied.number} of {model}: {applied.kind}, {applied.fetched_bytes / 1e6:.2f} MB in "
        f"{applied.prepare_s:.2f} s, {applied.changed_elements} values changed, pause "
        f"{1000 * applied.pause_s:.0f} ms"
    )
