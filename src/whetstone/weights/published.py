"""A trainer's weights for its replicas: a snapshot of each version, encoded while training goes on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

import torch
from msgspec import Struct

from whetstone.addresses import host_port
from whetstone.errors import UserError
from whetstone.weights.folder import FolderPublisher
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, Mark, packed, unpacked
from whetstone.weights.offer import FOLDER, TCP, Offer
from whetstone.weights.pieces import shards, whole
from whetstone.weights.publish import Encoded, Publisher
from whetstone.weights.settings import WeightsSection
from whetstone.weights.shelf import Shelf
from whetstone.weights.tcp_server import TcpServer

_DONE, _FAILED = b"\0", b"\1"


class Crew(Protocol):
    """The ranks of a trainer, as ``trainer.ranks.Ranks`` are."""

    @property
    def rank(self) -> int:
        """Which of them this process is."""
        ...

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    def gather(self, mine: bytes, what: str) -> list[bytes]:
        """The bytes of every rank, in the order of ranks. ``what`` names the wait."""
        ...


class Alone:
    """The crew of a trainer of one rank."""

    rank, size = 0, 1

    def gather(self, mine: bytes, what: str) -> list[bytes]:
        """See Crew."""
        return [mine]


class _Forms(Struct, frozen=True):
    """In which forms a version goes into a shared folder: as changes since each of these, or full."""

    bases: list[Mark | None]


class PublishedWeights:
    """Publishes the versions of one model, over TCP or in a folder. A context manager.

        with PublishedWeights("policy", recipe.flow.weights, dtype=trainer.dtype, token=token) as published:
            ...
            offered = published.publish(trainer.version, trainer.weights())  # returns after the snapshot
            ...                                                              # the next step may be made
            await flow.publish("policy", await asyncio.wrap_future(offered))  # replicas can fetch it

    model: what it is called, the same for the replicas. dtype: floats are published in it; None for each in
    its own. token: what replicas must know; needed beyond loopback. folder: the place for ``by: folder``
    where the settings name none. reach: HOST:PORT by which replicas reach this process, of the host and port
    that it listens on, where ``settings.address`` does not say. crew: the ranks among which the model is
    sharded: all of them make this, and publish ``trainer.weights(parts=True)``, together; each encodes and
    serves its own rows. It must not be used elsewhere (``ranks.apart()``), since it talks on a thread.

    The version before stays readable until nobody reads it, as the shelf says. Each start has a lineage of
    its own: what it publishes as version 7 need not be what an earlier one, which was killed, had as 7.

    Raises UserError for an address that cannot be had and a folder that cannot be written.
    """

    def __init__(
        self,
        model: str,
        settings: WeightsSection,
        *,
        dtype: torch.dtype | None,
        token: str = "",
        folder: Path | None = None,
        reach: Callable[[str, int], str] = host_port,
        crew: Crew | None = None,
    ) -> None:
        self._crew: Crew = crew or Alone()
        self._lineage = secrets.token_hex(8)
        self._folder: FolderPublisher | None = None
        self._address = ""
        self._pending: Future[Offer] | None = None
        with ExitStack() as undone:
            shelf = Shelf(keep=settings.keep, copies=settings.copies)
            if settings.by == "folder":
                self._where, self._folder = _shared(settings, folder, shelf)
            else:
                port = settings.port + self._crew.rank if settings.port else 0
                server = undone.enter_context(TcpServer(shelf, host=settings.host, port=port, token=token))
                mine = reach(settings.host, server.port)
                self._where = TCP + (settings.address or mine)
                self._address = mine if self._crew.rank else ""
            self._publisher = Publisher(
                model,
                shelf,
                dtype=dtype,
                threads=settings.threads,
                address=self._address,
                deltas=settings.send == "delta",
            )
            undone.callback(self._publisher.close)
            self._thread = undone.enter_context(ThreadPoolExecutor(1, "weights-offer"))
            self._undone = undone.pop_all()

    def publish(self, version: int, weights: Iterable[tuple[str, object]]) -> Future[Offer]:
        """Take a snapshot of ``weights`` now, and encode and publish it beside what comes next.

        The future is the offer, the same on every rank, as soon as replicas can fetch it; it raises UserError
        for a folder that is full. Waits for the version before, so at most one is under way. Raises
        ValueError when numbers do not rise or the tensors are others than before.
        """
        if self._pending is not None:
            wait([self._pending])
        crew = self._crew
        pieces = whole(weights) if crew.size == 1 else shards(weights, crew.rank, crew.size)
        encoding = self._publisher.begin(version, pieces)
        self._pending = self._thread.submit(self._offered, version, encoding)
        return self._pending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End when what is being published has been, and serve no more."""
        self._undone.close()

    def _offered(self, version: int, encoding: Future[Encoded]) -> Offer:
        parts = self._together(lambda: packed(encoding.result()), "the changes of the weights")
        encoded = encoding.result()
        manifest = None
        if self._crew.rank == 0:
            others = [unpacked(part, Encoded, MANIFEST_BYTES) for part in parts[1:]]
            manifest = self._publisher.announce(encoded, others)
        if self._folder is not None:
            self._into_folder(self._folder, encoded, manifest)
        offer = Offer(version, self._where, self._lineage)
        said = self._together(lambda: packed(offer), "the offer of the weights")[0]
        return unpacked(said, Offer, MANIFEST_BYTES)

    def _into_folder(self, folder: FolderPublisher, encoded: Encoded, manifest: Manifest | None) -> None:
        forms = [] if manifest is None else folder.due(manifest)
        mine = packed(_Forms([form.base for form in forms]))
        told = self._together(lambda: mine, "the form of the weights in the folder")[0]
        for number, base in enumerate(unpacked(told, _Forms, MANIFEST_BYTES).bases):

            def stage(base: Mark | None = base) -> bytes:
                folder.stage(encoded.number, base, len(encoded.full.parts), self._crew.rank)
                return b""

            def announce(number: int = number) -> bytes:
                if forms:
                    folder.announce(forms[number])
                return b""

            self._together(stage, "the weights in the folder")
            self._together(announce, "the weights in the folder")

    def _together(self, call: Callable[[], bytes], what: str) -> list[bytes]:
        """What ``call`` gives on each rank. Where it fails on one it does on all, for that one's reason."""
        error: Exception | None = None
        try:
            mine = _DONE + call()
        except Exception as raised:
            error, mine = raised, _FAILED + str(raised).encode(errors="replace")
        told = self._crew.gather(mine, what)
        if error is not None:
            raise error
        failed = [(rank, said[1:].decode()) for rank, said in enumerate(told) if said[:1] == _FAILED]
        if failed:
            raise UserError(f"rank {failed[0][0]}: {failed[0][1]}")
        return [said[1:] for said in told]


def _shared(settings: WeightsSection, folder: Path | None, shelf: Shelf) -> tuple[str, FolderPublisher]:
    root = Path(settings.folder).expanduser() if settings.folder else folder
    if root is None:
        raise UserError("weights go by a folder, and none is named: give one that all roles see")
    return FOLDER + str(root.resolve()), FolderPublisher(root, shelf, full_every=settings.full_every)
