"""The weights of a replica's engines, which follow what trainers offer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whetstone.engine.engine import Engine
from whetstone.errors import UserError
from whetstone.weights.folder_source import FolderSource
from whetstone.weights.follow import Applied, Follower
from whetstone.weights.offer import FOLDER, NONE_YET, TCP, Offer
from whetstone.weights.replica import Refused, Replica, Unlike, tensors_of
from whetstone.weights.settings import WeightsSection
from whetstone.weights.source import Denied, Source, Unreachable
from whetstone.weights.tcp_client import TcpSource

_REST_S, _MOST_REST_S = 0.5, 5.0
PATIENCE_S = 120.0
"""A replica that could never reach its publisher for so long gives up, and says why."""


class FollowedWeights:
    """The ``Weights`` of a replica (``flow/replica.py``) that hosts one or more models. ``close``
    it at the end.

        engine = build_engine(recipe.engine, lambda: loaded.model, loaded.tokenizer)
        weights = FollowedWeights({"policy": (engine, loaded.model)}, recipe.flow.weights, token=token)
        await weights.apply("policy", offer)   # as flow.replica.Replica does with what the flow offers
        weights.serving["policy"]              # Offer(version=8, …)

    models: for each name, under which its trainer publishes, the engine and the model that this was made
    with. It belongs to both from then on: an engine that generates with it on the CPU
    (``Capabilities.in_place``) has new weights written into it; of any other it is the copy in the host's
    memory, from which the engine is given them, and which later changes are added to. say: told what was
    applied, and what fails.

    A version is fetched and verified beside generation; replies in flight go on under it, token versions
    marked. What ``serving`` says is what the engine generates with. A version that cannot be applied (damaged
    on its way, refused by the engine) takes the replica out of rotation, as ``NONE_YET``, until one can; one
    that cannot be fetched leaves it with the version that it has.
    """

    def __init__(
        self,
        models: Mapping[str, tuple[Engine, Any]],
        settings: WeightsSection,
        *,
        token: str = "",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._say = say
        self._models = {
            name: _Followed(name, engine, model, settings, token) for name, (engine, model) in models.items()
        }

    @property
    def serving(self) -> Mapping[str, Offer]:
        """Of each model the version in use."""
        return {name: followed.serving for name, followed in self._models.items()}

    async def apply(self, model: str, offer: Offer) -> None:
        """Go to the newest version there is, which is what is offered or a later one.

        Where that fails it rests for a little, and ``serving`` says so: whoever offers does it again. Raises
        UserError for what will not pass: another model, a publisher that wants another token or could never
        be reached, an engine that is gone.
        """
        followed = self._models.get(model)
        if followed is None:
            raise Unlike(f"weights are offered of `{model}`; this replica has {', '.join(self._models)}")
        try:
            for applied in await followed.go(offer):
                self._say(_told(model, applied))
        except (Unreachable, Refused) as error:
            if followed.hopeless(error):
                raise
            if followed.failed(error):
                self._say(f"weights {offer.version} of {model} are tried again: {error}")
            await asyncio.sleep(followed.rest_s)

    def close(self) -> None:
        """Let go of connections and files."""
        for followed in self._models.values():
            followed.close()


class _Followed:
    """One model."""

    def __init__(self, name: str, engine: Engine, model: Any, settings: WeightsSection, token: str) -> None:
        self._engine, self._settings, self._token = engine, settings, token
        here = model.device.type == "cpu"
        tensors = tensors_of(model)
        self._copies = not (here and engine.capabilities.in_place)
        self._replica = Replica(tensors if here else {n: t.cpu() for n, t in tensors.items()}, name)
        self._where = ""
        self._source: Source | None = None
        self._follower: Follower | None = None
        self.serving = NONE_YET
        self._began = time.monotonic()
        self._ever = self._refused = False
        self._failures, self._failure = 0, ""

    async def go(self, offer: Offer) -> list[Applied]:
        """Go to the newest version of whoever publishes where the offer says."""
        try:
            applied = await self._followed(offer.where).catch_up()
        except Refused:
            self.serving, self._refused = NONE_YET, True
            raise
        except Unreachable:
            if self._gone_on():
                # Of no lineage, so that the rest of the way is offered.
                self.serving, self._ever = Offer(self._engine.version, offer.where), True
            raise
        number = self._engine.version
        # It may already be the version after; or, of a trainer that went back, one before.
        lineage = offer.lineage if number >= offer.version else ""
        self.serving = Offer(number, offer.where, lineage)
        self._ever, self._refused = True, False
        self._failures, self._failure = 0, ""
        if not applied and number != offer.version:
            await asyncio.sleep(_REST_S)
        return applied

    def hopeless(self, error: UserError) -> bool:
        """Whether it is of no use to try again."""
        if isinstance(error, Unlike):
            return True
        never = not self._ever and isinstance(error, Unreachable)
        return never and (isinstance(error, Denied) or time.monotonic() - self._began > PATIENCE_S)

    def failed(self, error: UserError) -> bool:
        """Count a failure; whether it is another than the last."""
        before, self._failure = self._failure, str(error)
        self._failures += 1
        return self._failure != before

    @property
    def rest_s(self) -> float:
        """How long to rest after so many failures."""
        return min(_REST_S * 2 ** min(self._failures - 1, 8), _MOST_REST_S)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _gone_on(self) -> bool:
        """Whether some of several steps to a version succeeded, and it was not refused before."""
        held = self._replica.mark is not None and not self._refused
        return held and self._engine.version != self.serving.version

    def _followed(self, where: str) -> Follower:
        if self._follower is None or where != self._where:
            self.close()
            self._source = self._source_at(where)
            self._follower = Follower(self._engine, self._replica, self._source, copies=self._copies)
            self._where = where
        return self._follower

    def _source_at(self, where: str) -> Source:
        if where.startswith(FOLDER):
            return FolderSource(Path(where.removeprefix(FOLDER)))
        if where.startswith(TCP):
            asked = self._settings
            address = where.removeprefix(TCP)
            return TcpSource(address, token=self._token, streams=asked.streams, silence_s=asked.silence_s)
        raise Unlike(f"`{where}` is no place of weights: the trainer is of another version of Whetstone")


def _told(model: str, applied: Applied) -> str:
    return (
        f"weights {applied.number} of {model}: {applied.kind}, {applied.fetched / 1e6:.2f} MB in "
        f"{applied.prepare_s:.2f} s, {applied.changed} values changed, pause {1000 * applied.pause_s:.0f} ms"
    )
