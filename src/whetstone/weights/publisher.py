"""Publishes a trainer's weights for its replicas. Each version is a snapshot, encoded while training
continues.

The snapshot is made between two steps, and encoded while the next step computes. Each rank encodes its own
part of the tensors. Rank 0 combines the shards of all ranks into one manifest. Each rank serves its own
parts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from msgspec import Struct

from whetstone.core.addresses import host_port
from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.engine.engine import ProcessGroup
from whetstone.weights.codec import encode_delta
from whetstone.weights.manifest import (
    MANIFEST_BYTES,
    Manifest,
    Shard,
    TensorBlock,
    TensorSpec,
    VersionId,
    decode_struct,
    digest,
    encode_struct,
    make_manifest,
    split_into_blocks,
)
from whetstone.weights.offer import FOLDER, TCP, Offer
from whetstone.weights.settings import WeightsSection, default_threads
from whetstone.weights.shards import RankSnapshot, TensorShard, rank_shards, whole_tensors
from whetstone.weights.shared_folder import FolderPublisher
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore


class EncodedVersion(Struct, frozen=True):
    """One rank's part of a version, already in its store. ``manifest.encode_struct`` makes bytes of it for
    rank 0.

    delta: its shard as changes since the version ``base``; None for the first version, and if only full
    copies are published. snapshot_s, encode_s: seconds that the trainer waited, and seconds of encoding in
    the background.
    """

    number: int
    base: int | None
    tensors: list[TensorSpec]
    full: Shard
    delta: Shard | None
    snapshot_s: float
    encode_s: float


class VersionEncoder:
    """Encodes versions of one model into a store.

    model: the model's name, equal for publisher and replicas. dtype: published type of floats; None keeps
    each type. threads: number of encoding threads; None: ``default_threads()``. address: where this rank's
    store is served, if it differs from rank 0's. deltas: whether to encode changes; otherwise every version
    is a full copy.
    """

    def __init__(
        self,
        model: str,
        store: VersionStore,
        *,
        dtype: torch.dtype | None = torch.bfloat16,
        threads: int | None = None,
        address: str = "",
        deltas: bool = True,
    ) -> None:
        self.model, self.store = model, store
        self._dtype, self._address, self._deltas = dtype, address, deltas
        self._workers = ThreadPoolExecutor(threads or default_threads(), "weights-encode")
        self._publishing = ThreadPoolExecutor(1, "weights-publish")
        self._previous: tuple[int, RankSnapshot] | None = None
        self._pending: Future[EncodedVersion] | None = None
        self._announced: VersionId | None = None

    def begin(self, number: int, pieces: Iterable[TensorShard]) -> Future[EncodedVersion]:
        """Take a snapshot now and encode it in the background. All ranks call this together.

        It first waits for the previous encoding, so at most one is in progress. Raises ValueError if the
        number does not increase or the tensors differ from the previous version's, and any error of the
        previous encoding.
        """
        if self._pending is not None:
            self._pending.result()
        if self._previous is not None and number <= self._previous[0]:
            raise ValueError(f"version {number} after version {self._previous[0]}")
        began = time.perf_counter()
        found = list(pieces)
        if self._previous is not None:
            # A delta has no form for tensors that appear, disappear or change shape.
            self._previous[1].check(found)
        snapshot = self.store.reserve_snapshot(lambda: RankSnapshot(found, self._dtype))
        snapshot.fill(found)
        snapshot_s = time.perf_counter() - began
        base = self._previous if self._deltas else None
        self._pending = self._publishing.submit(self._encode, number, snapshot, base, snapshot_s)
        self._previous = (number, snapshot)
        return self._pending

    def announce(self, encoded: EncodedVersion, others: Sequence[EncodedVersion] = ()) -> Manifest:
        """Make a version the newest, from this rank's part and those of the ``others``.

        Rank 0 calls this after every rank's encoding has ended and before the next begins. Raises ValueError
        if something is missing.
        """
        ranks = (encoded, *others)
        full = make_manifest(self.model, encoded.number, encoded.tensors, [rank.full for rank in ranks])
        shards = [rank.delta for rank in ranks if rank.delta is not None]
        delta = None
        # A delta that lacks the shard of one rank could not be applied.
        if self._announced is not None and len(shards) == len(ranks):
            delta = make_manifest(self.model, encoded.number, encoded.tensors, shards, self._announced)
        self.store.announce(full, delta)
        self._announced = full.version_id
        return delta or full

    def close(self) -> None:
        """Wait for the current encoding, then stop."""
        self._publishing.shutdown(wait=True)
        self._workers.shutdown(wait=True)

    def _encode(
        self, number: int, snapshot: RankSnapshot, previous: tuple[int, RankSnapshot] | None, waited: float
    ) -> EncodedVersion:
        began = time.perf_counter()
        blocks, ends = split_into_blocks(snapshot.specs, snapshot.extents)
        unsigned = Shard(blocks, ends)
        encode = partial(_encode_part, new=snapshot, old=previous[1] if previous else None)
        done = list(self._workers.map(encode, map(unsigned.part, range(len(ends)))))
        full = Shard([block for part in done for block in part[0]], ends, self._address)
        parts = [part[1] for part in done]
        delta = None
        if previous is not None:
            changed, size = sum(part[2] for part in done), sum(map(len, parts))
            delta = Shard(full.blocks, ends, self._address, changed, size)
        self.store.add(number, snapshot, full, previous[0] if previous else None, parts)
        encode_s = time.perf_counter() - began
        return EncodedVersion(
            number, previous[0] if previous else None, snapshot.specs, full, delta, waited, encode_s
        )


def _encode_part(
    blocks: list[TensorBlock], new: RankSnapshot, old: RankSnapshot | None
) -> tuple[list[TensorBlock], bytes, int]:
    """Return the blocks of a part with checksums, the encoded changes, and the number of changed elements."""
    elements = [new.block(block) for block in blocks]
    signed = [
        TensorBlock(b.tensor, b.offset, b.count, digest(w)) for b, w in zip(blocks, elements, strict=True)
    ]
    if old is None:
        return signed, b"", 0
    data, changed = encode_delta([old.block(block) for block in blocks], elements)
    return signed, data, changed


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


class VersionPublisher(Closing):
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
