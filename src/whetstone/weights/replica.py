"""Applies published versions to a replica's tensors: a version is decoded and verified first, then written.

A version that cannot be verified changes nothing: the replica keeps its current version.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from whetstone.core.errors import UserError
from whetstone.engine.weights import Patch
from whetstone.weights.codec import decode_delta, decode_full
from whetstone.weights.manifest import Manifest, TensorBlock, VersionId, digest
from whetstone.weights.settings import default_threads
from whetstone.weights.shards import INTEGER_DTYPES, as_tensor, elements_of
from whetstone.weights.source import OnPart, PartKey
from whetstone.weights.streams import Bytes, CorruptData, Elements

# Parts that wait for a thread, for each thread. More would only need memory.
_AHEAD = 2
# After so many parts that differ, one that no thread has compared yet is fetched without a comparison.
_DIFFERING = 8


class PartWorkers:
    """A pool of ``threads`` for one version. At the end of its context all parts are done; then it raises
    the first error of a part."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "weights-parts")
        self._most_ahead = _AHEAD * threads
        self._room = threading.BoundedSemaphore(self._most_ahead)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None and self._error is not None:
            raise self._error

    def missing(self, keys: Iterable[PartKey], has: Callable[[PartKey], bool]) -> Iterator[PartKey]:
        """Yield the parts that the replica does not have, in order, compared ahead of the reader.

        If the reader is faster than the comparison and nothing was the same lately, it also gets parts that
        were not compared.
        """
        begun: deque[tuple[PartKey, Future[bool]]] = deque()
        left, differing = iter(keys), 0
        while True:
            while len(begun) < self._most_ahead and (key := next(left, None)) is not None:
                begun.append((key, self._pool.submit(has, key)))
            if not begun:
                return
            key, same = begun.popleft()
            if differing >= _DIFFERING and same.cancel():
                yield key
            elif same.result():
                differing = 0
            else:
                differing += 1
                yield key

    def taking(self, take: OnPart) -> OnPart:
        """Return a function that lets a thread ``take`` a part, and waits while too many are not done. It
        raises the first error of an earlier part."""

        def run(key: PartKey, data: Bytes) -> None:
            try:
                if self._error is None:
                    take(key, data)
            except BaseException as error:
                # `taking`'s caller raises it.
                self._error = self._error or error
            finally:
                self._room.release()

        def submit(key: PartKey, data: Bytes) -> None:
            self._room.acquire()
            if self._error is not None:
                self._room.release()
                raise self._error
            self._pool.submit(run, key, data)

        return submit


class VersionRejected(UserError):
    """A version that does not fit this replica, or does not match its checksums."""


class ModelMismatch(VersionRejected):
    """Versions of another model than this replica's."""


_SAME_MODEL = "give trainer and replica the same `model` section"

Fetch = Callable[[Manifest, Iterable[PartKey], OnPart], None]
"""``WeightSource.fetch``."""


@dataclass
class _TensorChanges:
    """The changes of one tensor: runs of new elements, and single elements at positions."""

    dtype: torch.dtype
    """The integer type as which its elements are written."""
    runs: list[tuple[int, Tensor]] = field(default_factory=lambda: list[tuple[int, Tensor]]())
    scattered: list[tuple[Tensor, Tensor]] = field(default_factory=lambda: list[tuple[Tensor, Tensor]]())

    def positions(self) -> Tensor:
        """Return the flat positions of all changes."""
        runs = (torch.arange(start, start + len(new)) for start, new in self.runs)
        return torch.cat([torch.empty(0, dtype=torch.int64), *runs, *(at for at, _ in self.scattered)])


class PreparedVersion:
    """A verified version, ready to be written. It only holds the changes."""

    def __init__(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
        self.manifest = manifest
        self.fetched = 0
        self._tensors = tensors
        self._changes = [_TensorChanges(INTEGER_DTYPES[spec.width]) for spec in manifest.tensors]
        self._lock = threading.Lock()

    @property
    def changed_elements(self) -> int:
        """Number of elements that are written."""
        return sum(
            sum(len(elements) for _, elements in news.runs) + sum(len(at) for at, _ in news.scattered)
            for news in self._changes
        )

    def patches(self) -> Iterator[tuple[str, Patch]]:
        """Yield every tensor's name and patch, for ``Engine.update_weights``."""
        for spec, news in zip(self.manifest.tensors, self._changes, strict=True):
            held = self._tensors[spec.name]
            yield spec.name, Patch(held.shape, held.dtype, partial(_write, news), news.positions)

    def write(self) -> None:
        """Write the changes into the replica's own tensors."""
        for name, patch in self.patches():
            patch.write(self._tensors[name])

    def add(
        self, blocks: list[TensorBlock], changes: list[tuple[Elements, Elements] | Elements], size: int
    ) -> None:
        """Add the changes in the blocks of a part, which had ``size`` bytes."""
        with self._lock:
            self.fetched += size
            for block, new in zip(blocks, changes, strict=True):
                news = self._changes[block.tensor]
                if not isinstance(new, tuple):
                    news.runs.append((block.offset, as_tensor(new)))
                elif len(new[0]):
                    news.scattered.append((torch.from_numpy(new[0] + block.offset), as_tensor(new[1])))


def merge_patches(steps: Sequence[PreparedVersion]) -> Iterator[tuple[str, Patch]]:
    """Merge consecutive versions into one set of patches, in the form of ``PreparedVersion.patches``."""
    for patches in zip(*(step.patches() for step in steps), strict=True):
        (name, first), *_ = patches

        def write(target: Tensor, patches: Sequence[tuple[str, Patch]] = patches) -> None:
            for _, patch in patches:
                patch.write(target)

        def positions(patches: Sequence[tuple[str, Patch]] = patches) -> Tensor:
            return torch.cat([patch.positions() for _, patch in patches])

        yield name, Patch(first.shape, first.dtype, write, positions)


def published_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's published tensors by name: its parameters, tied ones once, and its persistent
    buffers."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    kept = {name: p.detach() for name, p in model.named_parameters()}
    return kept | {name: value for name, value in model.state_dict().items() if name not in every}


class WeightReplica:
    """Tensors that are updated to published versions.

    tensors: by published name, each contiguous and in host memory: the weights of the engine's model
    themselves, or copies of them. They are read while a version is verified, so nothing else may write them.
    model: the publisher's name of the model. threads: that compare, decode and verify; None:
    ``default_threads()``. copies: whether they are copies that no engine generates with. Parts of a full
    version are then written as soon as they are verified, which needs no memory for a second model.
    ``version_id`` is the current version.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], model: str, *, threads: int | None = None, copies: bool = False
    ) -> None:
        self._threads, self._copies = threads or default_threads(), copies
        self._tensors = tensors
        self._elements = {name: elements_of(tensor) for name, tensor in tensors.items()}
        self._model = model
        self.version_id: VersionId | None = None

    def prepare(self, manifest: Manifest, fetch: Fetch) -> PreparedVersion:
        """Fetch and verify a version. Of a full version, only fetch parts that these tensors do not have
        already.

        A full version for copies is then already written, and a failure leaves them without a version.
        Raises ModelMismatch for another model or other tensors, and VersionRejected for another base than the
        current version and for damaged data.
        """
        self._check(manifest)
        prepared = PreparedVersion(manifest, self._tensors)
        take = self._add_full_part if manifest.base is None else self._add_delta_part
        keys = manifest.part_keys()
        try:
            with PartWorkers(self._threads) as workers:
                if manifest.base is None:
                    if self._copies:
                        self.version_id = None
                    # A replica that loaded the same model as the trainer has most parts already.
                    keys = workers.missing(keys, partial(self._has_part, manifest))
                fetch(manifest, keys, workers.taking(partial(take, prepared)))
        except CorruptData as error:
            raise VersionRejected(
                f"version {manifest.number} of the weights arrived damaged: {error}"
            ) from None
        return prepared

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor with its name."""
        yield from self._tensors.items()

    def commit(self, prepared: PreparedVersion) -> None:
        """Record that the tensors are now this version."""
        self.version_id = prepared.manifest.version_id

    def _check(self, manifest: Manifest) -> None:
        if manifest.model != self._model:
            raise ModelMismatch(
                f"weights are published for `{manifest.model}`, but this model is `{self._model}`"
            )
        if manifest.base is not None and manifest.base != self.version_id:
            raise VersionRejected(
                f"the changes are relative to version {manifest.base.number}, which this replica does "
                "not have"
            )
        for spec in manifest.tensors:
            held = self._tensors.get(spec.name)
            if held is None:
                raise ModelMismatch(
                    f"weights are published with `{spec.name}`, which this model does not have: {_SAME_MODEL}"
                )
            elements = self._elements[spec.name]
            found = (str(held.dtype).removeprefix("torch."), tuple(held.shape))
            if found != (spec.dtype, spec.shape):
                raise ModelMismatch(
                    f"`{spec.name}` is published as {spec.dtype} {list(spec.shape)}, and is "
                    f"{found[0]} {list(found[1])} here: {_SAME_MODEL}"
                )
            if (elements.dtype.itemsize, len(elements)) != (spec.width, spec.elements):
                raise ModelMismatch(
                    f"`{spec.name}` is published with {spec.elements} elements of {spec.width} bytes"
                )
        # A tensor that is never published would silently keep its first values.
        missing = self._tensors.keys() - {spec.name for spec in manifest.tensors}
        if missing:
            raise ModelMismatch(
                f"weights are published without `{min(missing)}`, which this model has: {_SAME_MODEL}"
            )

    def _current(self, manifest: Manifest, block: TensorBlock) -> Elements:
        elements = self._elements[manifest.tensors[block.tensor].name]
        return elements[block.offset : block.offset + block.count]

    def _has_part(self, manifest: Manifest, key: PartKey) -> bool:
        blocks = manifest.shards[key[0]].part(key[1])
        return all(digest(self._current(manifest, block)) == block.digest for block in blocks)

    def _add_full_part(self, prepared: PreparedVersion, key: PartKey, data: Bytes) -> None:
        manifest = prepared.manifest
        blocks = manifest.shards[key[0]].part(key[1])
        elements = decode_full(data, *manifest.part_shape(*key))
        found: list[tuple[Elements, Elements] | Elements] = []
        start = 0
        for block in blocks:
            new = elements[start : start + block.count]
            _verify(manifest, block, new)
            if self._copies:
                current = self._current(manifest, block)
                current[:] = new
                new = current
            found.append(new)
            start += block.count
        prepared.add(blocks, found, len(data))

    def _add_delta_part(self, prepared: PreparedVersion, key: PartKey, data: Bytes) -> None:
        manifest = prepared.manifest
        blocks = manifest.shards[key[0]].part(key[1])
        # The new elements are a copy, so that damaged data changes nothing.
        positions, elements = decode_delta(data, [self._current(manifest, block) for block in blocks])
        found: list[tuple[Elements, Elements] | Elements] = []
        start = 0
        for block in blocks:
            end = start + block.count
            new = elements[start:end]
            _verify(manifest, block, new)
            first, last = np.searchsorted(positions, (start, end))
            at = positions[first:last] - start
            found.append((at, new[at]))
            start = end
        prepared.add(blocks, found, len(data))


def _verify(manifest: Manifest, block: TensorBlock, elements: Elements) -> None:
    if digest(elements) != block.digest:
        raise CorruptData(f"`{manifest.tensors[block.tensor].name}` has another checksum")


def _write(news: _TensorChanges, target: Tensor) -> None:
    """Write the changes as integers, without interpreting values, on the device of the target. Runs may
    be views of the target itself, which has them then."""
    if not (news.runs or news.scattered):
        return
    with torch.no_grad():
        flat = target.view(-1).view(news.dtype)
        for start, new in news.runs:
            run = flat[start : start + len(new)]
            if run.data_ptr() != new.data_ptr():
                run.copy_(new)
        for at, new in news.scattered:
            flat[at.to(flat.device)] = new.to(flat.device)
