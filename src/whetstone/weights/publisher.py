"""Publishes a trainer's weights for its replicas. Each version is a snapshot, encoded while training
continues."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import torch
from msgspec import Struct

from whetstone.core.addresses import host_port
from whetstone.core.errors import UserError
from whetstone.engine.engine import ProcessGroup
from whetstone.weights.encoder import EncodedVersion, VersionEncoder
from whetstone.weights.folder_publisher import FolderPublisher
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, VersionId, decode_struct, encode_struct
from whetstone.weights.offer import FOLDER, TCP, Offer
from whetstone.weights.settings import WeightsSection
from whetstone.weights.shards import rank_shards, whole_tensors
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore

_DONE, _FAILED = b"\0", b"\1"


class _SingleProcess:
    """The process group of a trainer with one rank."""

    rank, size, local_size = 0, 1, 1

    def gather(self, data: bytes, description: str) -> list[bytes]:
        """See ProcessGroup."""
        return [data]


class _FolderForms(Struct, frozen=True):
    """The forms in which a version is written to a shared folder: as changes since each of these versions, or
    full."""

    bases: list[VersionId | None]


class VersionPublisher:
    """Publishes the versions of one model, over TCP or in a folder. A context manager.

        with VersionPublisher("policy", recipe.flow.weights, dtype=trainer.dtype, token=token) as published:
            ...
            offered = published.publish(trainer.version, trainer.weights())  # returns after the snapshot
            ...                                                              # the next step may run
            await flow.publish("policy", await asyncio.wrap_future(offered))  # replicas can fetch it

    model: the model's name, equal on replicas. dtype: published type of floats; None keeps each type.
    token: the token of replicas; needed beyond loopback. folder: used for ``by: folder`` if the settings name
    none. reach: maps the listening host and port to the HOST:PORT by which replicas reach this process,
    unless ``settings.address`` is set. ranks: the ranks among which the model is sharded. All of them create
    this object and publish ``trainer.weights(parts=True)`` together; each encodes and serves its own rows.
    Pass a separate group (``ranks.new_group()``), because it is used from a thread.

    The previous version stays readable while a replica reads it; see ``VersionStore``. Each start has its own
    run id: its version 7 may differ from version 7 of an earlier start that was killed.

    Raises UserError for an address that is not available and a folder that cannot be written.
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
        ranks: ProcessGroup | None = None,
    ) -> None:
        self._ranks: ProcessGroup = ranks or _SingleProcess()
        # A killed trainer may publish the same number again with other weights. The id tells them apart.
        self._run_id = secrets.token_hex(8)
        self._folder: FolderPublisher | None = None
        self._address = ""
        self._pending: Future[Offer] | None = None
        with ExitStack() as undone:
            store = VersionStore(keep=settings.keep, copies=settings.copies)
            if settings.by == "folder":
                self._url, self._folder = _folder_publisher(settings, folder, store)
            else:
                # Ranks may share a host, so each has its own port.
                port = settings.port + self._ranks.rank if settings.port else 0
                server = undone.enter_context(TcpServer(store, host=settings.host, port=port, token=token))
                own_address = reach(settings.host, server.port)
                self._url = TCP + (settings.address or own_address)
                # Replicas know the first rank's address from the offer.
                self._address = own_address if self._ranks.rank else ""
            self._publisher = VersionEncoder(
                model,
                store,
                dtype=dtype,
                threads=settings.threads,
                address=self._address,
                deltas=settings.send == "delta",
            )
            undone.callback(self._publisher.close)
            self._thread = undone.enter_context(ThreadPoolExecutor(1, "weights-offer"))
            self._resources = undone.pop_all()

    def publish(self, version: int, weights: Iterable[tuple[str, object]]) -> Future[Offer]:
        """Take a snapshot of ``weights`` now, and encode and publish it in the background.

        The future gives the offer, equal on every rank, once replicas can fetch the version. It raises
        UserError for a full disk. Waits for the previous version, so at most one is in progress. Raises
        ValueError if the number does not increase or the tensors differ from the previous version's.
        """
        if self._pending is not None:
            # More than one version in progress would need more snapshots in memory.
            wait([self._pending])
        ranks = self._ranks
        pieces = whole_tensors(weights) if ranks.size == 1 else rank_shards(weights, ranks.rank, ranks.size)
        encoding = self._publisher.begin(version, pieces)
        self._pending = self._thread.submit(self._publish_encoded, version, encoding)
        return self._pending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the current version, then stop serving."""
        self._resources.close()

    def _publish_encoded(self, version: int, encoding: Future[EncodedVersion]) -> Offer:
        parts = self._on_all_ranks(lambda: encode_struct(encoding.result()), "the changes of the weights")
        encoded = encoding.result()
        manifest = None
        # Only rank 0 announces: replicas must see one manifest with all shards.
        if self._ranks.rank == 0:
            others = [decode_struct(part, EncodedVersion, MANIFEST_BYTES) for part in parts[1:]]
            manifest = self._publisher.announce(encoded, others)
        if self._folder is not None:
            self._write_to_folder(self._folder, encoded, manifest)
        offer = Offer(version, self._url, self._run_id)
        shared = self._on_all_ranks(lambda: encode_struct(offer), "the offer of the weights")[0]
        return decode_struct(shared, Offer, MANIFEST_BYTES)

    def _write_to_folder(
        self, folder: FolderPublisher, encoded: EncodedVersion, manifest: Manifest | None
    ) -> None:
        forms = [] if manifest is None else folder.forms_to_write(manifest)
        own_forms = encode_struct(_FolderForms([form.base for form in forms]))
        # Only the first rank knows which forms the folder needs.
        shared = self._on_all_ranks(lambda: own_forms, "the form of the weights in the folder")[0]
        for number, base in enumerate(decode_struct(shared, _FolderForms, MANIFEST_BYTES).bases):

            def stage(base: VersionId | None = base) -> bytes:
                folder.stage(encoded.number, base, len(encoded.full.parts), self._ranks.rank)
                return b""

            def announce(number: int = number) -> bytes:
                if forms:
                    folder.announce(forms[number])
                return b""

            # Nothing is announced before all ranks have written: a version without a shard cannot be read.
            self._on_all_ranks(stage, "the weights in the folder")
            self._on_all_ranks(announce, "the weights in the folder")

    def _on_all_ranks(self, call: Callable[[], bytes], description: str) -> list[bytes]:
        """Return the result of ``call`` from each rank. If it fails on one rank, all ranks raise that rank's
        error."""
        # A rank that raised at once would leave the others waiting in `gather`.
        error: Exception | None = None
        try:
            own = _DONE + call()
        except Exception as raised:
            error, own = raised, _FAILED + str(raised).encode(errors="replace")
        results = self._ranks.gather(own, description)
        if error is not None:
            raise error
        failed = [(rank, result[1:].decode()) for rank, result in enumerate(results) if result[:1] == _FAILED]
        if failed:
            raise UserError(f"rank {failed[0][0]}: {failed[0][1]}")
        return [result[1:] for result in results]


def _folder_publisher(
    settings: WeightsSection, folder: Path | None, store: VersionStore
) -> tuple[str, FolderPublisher]:
    root = Path(settings.folder).expanduser() if settings.folder else folder
    if root is None:
        raise UserError(
            "`flow.weights.by` is `folder`, and no folder is given: set `flow.weights.folder` to one "
            "that all roles can access"
        )
    return FOLDER + str(root.resolve()), FolderPublisher(root, store)
