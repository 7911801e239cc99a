"""A replica's side: a version is decoded and verified beside the weights in use, then written over them.

Whatever cannot be verified changes nothing: the replica stays on the version that it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from whetstone.engine.weights import Patch
from whetstone.errors import UserError
from whetstone.weights.codec import Bytes, Damaged, Words, decode_delta, decode_full
from whetstone.weights.manifest import Block, Manifest, Mark, digest
from whetstone.weights.pieces import SIGNED, signed, words_of
from whetstone.weights.source import PartKey, Take


class Refused(UserError):
    """A version that does not fit this replica, or is not what its checksums say."""


class Unlike(Refused):
    """Versions of another model than the one that is held here."""


_SAME = "give trainer and replica the same `model` section"

Fetch = Callable[[Manifest, Iterable[PartKey], Take], None]
"""``Source.fetch``."""


@dataclass
class _News:
    """What becomes of one tensor: runs of new words, and single ones at positions."""

    dtype: torch.dtype
    """The integers that its words are seen as."""
    runs: list[tuple[int, Tensor]] = field(default_factory=lambda: list[tuple[int, Tensor]]())
    spots: list[tuple[Tensor, Tensor]] = field(default_factory=lambda: list[tuple[Tensor, Tensor]]())


class Prepared:
    """A verified version, ready to be written. It holds what is new, and nothing else."""

    def __init__(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
        self.manifest = manifest
        self.fetched = 0
        self._tensors = tensors
        self._news = [_News(SIGNED[spec.width]) for spec in manifest.tensors]
        self._lock = threading.Lock()

    @property
    def changed(self) -> int:
        """Words that are written."""
        return sum(
            sum(len(words) for _, words in news.runs) + sum(len(at) for at, _ in news.spots)
            for news in self._news
        )

    def patches(self) -> Iterator[tuple[str, Patch]]:
        """Every tensor by name with what is new of it, for ``Engine.update_weights``."""
        for spec, news in zip(self.manifest.tensors, self._news, strict=True):
            held = self._tensors[spec.name]
            yield spec.name, Patch(held.shape, held.dtype, partial(_write, news))

    def write(self) -> None:
        """Write what is new into the replica's own tensors."""
        for name, patch in self.patches():
            patch.write(self._tensors[name])

    def add(self, blocks: list[Block], found: list[tuple[Words, Words] | Words], size: int) -> None:
        """Keep what is new in the blocks of a part, which had ``size`` bytes."""
        with self._lock:
            self.fetched += size
            for block, new in zip(blocks, found, strict=True):
                news = self._news[block.tensor]
                if not isinstance(new, tuple):
                    news.runs.append((block.offset, signed(new)))
                elif len(new[0]):
                    news.spots.append((torch.from_numpy(new[0] + block.offset), signed(new[1])))


def combined(steps: Sequence[Prepared]) -> Iterator[tuple[str, Patch]]:
    """What is new after several versions, each a step from the one before, as ``Prepared.patches`` has it."""
    for patches in zip(*(step.patches() for step in steps), strict=True):
        (name, first), *_ = patches

        def write(target: Tensor, patches: Sequence[tuple[str, Patch]] = patches) -> None:
            for _, patch in patches:
                patch.write(target)

        yield name, Patch(first.shape, first.dtype, write)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """What of a model is published, by name: its parameters, tied ones once, and its persistent buffers."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    kept = {name: p.detach() for name, p in model.named_parameters()}
    return kept | {name: value for name, value in model.state_dict().items() if name not in every}


class Replica:
    """Tensors that follow versions.

    tensors: by the names that are published, each contiguous and in the memory of the host: the weights of
    the engine's model themselves, or copies of them. They are read while a version is verified, so nobody
    else may write them. model: what the publisher calls the model. ``mark`` is the version that they are.
    """

    def __init__(self, tensors: Mapping[str, Tensor], model: str) -> None:
        self._tensors = tensors
        self._words = {name: words_of(tensor) for name, tensor in tensors.items()}
        self._model = model
        self.mark: Mark | None = None

    def prepare(self, manifest: Manifest, fetch: Fetch) -> Prepared:
        """Get and verify a version. Of a full one, only parts that these tensors do not hold already.

        Raises Unlike for another model or other tensors, and Refused for a base that is not held and for
        what is damaged.
        """
        self._check(manifest)
        prepared = Prepared(manifest, self._tensors)
        take = self._take_full if manifest.base is None else self._take_delta
        keys = [key for key in manifest.part_keys() if manifest.base or not self._holds(manifest, key)]
        try:
            fetch(manifest, keys, partial(take, prepared))
        except Damaged as error:
            raise Refused(f"version {manifest.number} of the weights arrived damaged: {error}") from None
        return prepared

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by name."""
        yield from self._tensors.items()

    def commit(self, prepared: Prepared) -> None:
        """The tensors are now this version."""
        self.mark = prepared.manifest.mark

    def _check(self, manifest: Manifest) -> None:
        if manifest.model != self._model:
            raise Unlike(f"weights are published of `{manifest.model}`, and this is `{self._model}`")
        if manifest.base is not None and manifest.base != self.mark:
            raise Refused(f"changes since version {manifest.base.number}, which is not held here")
        for spec in manifest.tensors:
            held = self._tensors.get(spec.name)
            if held is None:
                raise Unlike(f"weights are published with `{spec.name}`, which this model has not: {_SAME}")
            words = self._words[spec.name]
            found = (str(held.dtype).removeprefix("torch."), tuple(held.shape))
            if found != (spec.dtype, spec.shape):
                raise Unlike(
                    f"`{spec.name}` is published as {spec.dtype} {list(spec.shape)}, and is "
                    f"{found[0]} {list(found[1])} here: {_SAME}"
                )
            if (words.dtype.itemsize, len(words)) != (spec.width, spec.words):
                raise Unlike(f"`{spec.name}` is published with {spec.words} words of {spec.width} bytes")
        missing = self._tensors.keys() - {spec.name for spec in manifest.tensors}
        if missing:
            raise Unlike(f"weights are published without `{min(missing)}`, which this model has: {_SAME}")

    def _old(self, manifest: Manifest, block: Block) -> Words:
        words = self._words[manifest.tensors[block.tensor].name]
        return words[block.offset : block.offset + block.count]

    def _holds(self, manifest: Manifest, key: PartKey) -> bool:
        blocks = manifest.shards[key[0]].part(key[1])
        return all(digest(self._old(manifest, block)) == block.digest for block in blocks)

    def _take_full(self, prepared: Prepared, key: PartKey, data: Bytes) -> None:
        manifest = prepared.manifest
        blocks = manifest.shards[key[0]].part(key[1])
        words = decode_full(data, *manifest.part_shape(*key))
        found: list[tuple[Words, Words] | Words] = []
        start = 0
        for block in blocks:
            new = words[start : start + block.count]
            _verify(manifest, block, new)
            found.append(new)
            start += block.count
        prepared.add(blocks, found, len(data))

    def _take_delta(self, prepared: Prepared, key: PartKey, data: Bytes) -> None:
        manifest = prepared.manifest
        blocks = manifest.shards[key[0]].part(key[1])
        starts = np.cumsum([0, *(block.count for block in blocks)])

        def held(at: Words) -> Words:
            within = zip(blocks, starts, np.split(at, np.searchsorted(at, starts[1:-1])), strict=False)
            return np.concatenate([self._old(manifest, block)[some - start] for block, start, some in within])

        positions, values = decode_delta(data, *manifest.part_shape(*key), held)
        edges = np.searchsorted(positions, starts)
        found: list[tuple[Words, Words] | Words] = []
        for n, block in enumerate(blocks):
            inside = slice(edges[n], edges[n + 1])
            at = positions[inside] - starts[n]
            new = self._old(manifest, block).copy()
            new[at] = values[inside]
            _verify(manifest, block, new)
            found.append((at, values[inside]))
        prepared.add(blocks, found, len(data))


def _verify(manifest: Manifest, block: Block, words: Words) -> None:
    if digest(words) != block.digest:
        raise Damaged(f"`{manifest.tensors[block.tensor].name}` has another checksum")


def _write(news: _News, target: Tensor) -> None:
    """Without looking at numbers: as integers, on whichever device the target is."""
    if not (news.runs or news.spots):
        return
    with torch.no_grad():
        flat = target.view(-1).view(news.dtype)
        for start, new in news.runs:
            flat[start : start + len(new)] = new.to(flat.device)
        for at, new in news.spots:
            flat[at.to(flat.device)] = new.to(flat.device)
