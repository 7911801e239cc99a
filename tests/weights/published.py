"""A publisher and replicas of a few small tensors of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from whetstone.weights.manifest import Manifest, VersionId, dump_manifest, load_manifest
from whetstone.weights.publisher import VersionEncoder
from whetstone.weights.replica import PreparedVersion, WeightReplica
from whetstone.weights.shards import whole_tensors
from whetstone.weights.source import OnPart, PartKey, WeightSource
from whetstone.weights.version_store import VersionStore


class Trained:
    """A model of sorts, whose every version is fixed by its number."""

    def __init__(self, size: int = 30_000) -> None:
        self.size = size

    def tensors(self, number: int) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(0)
        first = {
            "layers.0.weight": torch.randn(self.size // 100, 100, generator=draw),
            "layers.1.weight": torch.randn(7, 3, generator=draw),
            "bias": torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-40]),
            "scalar": torch.tensor(1.5),
            "nothing": torch.zeros(0, 4),
            "count": torch.arange(5),
            "mask": torch.tensor([True, False, True]),
        }
        for step in range(number):
            draw.manual_seed(step + 1)
            for name in ("layers.0.weight", "layers.1.weight"):
                first[name] = first[name] + 1e-4 * torch.randn(first[name].shape, generator=draw)
            first["bias"] = -first["bias"]
            first["count"] = first["count"] + 1
        return first

    def published(self, number: int) -> dict[str, Tensor]:
        """As it is published: floats in bf16."""
        return {
            name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).clone()
            for name, tensor in self.tensors(number).items()
        }


def same_bits(held: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return all(
        torch.equal(held[name].reshape(-1).view(torch.uint8), wanted[name].reshape(-1).view(torch.uint8))
        for name in wanted
    )


def publish(encoder: VersionEncoder, number: int, tensors: Mapping[str, Tensor]) -> Manifest:
    """Encode and announce a version of a trainer with one rank."""
    return encoder.announce(encoder.begin(number, whole_tensors(tensors.items())).result())


class Side:
    """A publisher with its store."""

    def __init__(self, trained: Trained, **store: Any) -> None:
        self.trained = trained
        self.store = VersionStore(**store)
        self.publisher = VersionEncoder("tiny", self.store)

    def publish(self, number: int) -> None:
        publish(self.publisher, number, self.trained.tensors(number))


def replica_of() -> tuple[WeightReplica, dict[str, Tensor]]:
    """A replica whose matrices are other than any version's."""
    held = Trained().published(0)
    held["layers.0.weight"].zero_()
    return WeightReplica(held, "tiny"), held


def follow(replica: WeightReplica, source: WeightSource, wait_s: float = 0.0) -> list[PreparedVersion]:
    """Go to the newest version, without an engine."""
    steps: list[PreparedVersion] = []
    for manifest in source.plan(replica.version_id, wait_s):
        steps.append(replica.prepare(manifest, source.fetch))
        steps[-1].write()
        replica.commit(steps[-1])
    return steps


class StoreSource:
    """A Source on a store of this process. ``damage`` is done to every part; ``fetched`` counts them."""

    def __init__(self, *shelves: VersionStore) -> None:
        self.shelves = shelves
        self.fetched = 0
        self.damage: Callable[[bytes], bytes] = bytes

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        return [load_manifest(dump_manifest(manifest)) for manifest in self.shelves[0].plan(have, wait_s)]

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], on_part: OnPart) -> None:
        for shard, part in parts:
            reading = self.shelves[shard].open(manifest.number, manifest.base and manifest.base.number)
            self.fetched += 1
            on_part((shard, part), self.damage(reading.part(part)))
            reading.close()

    def close(self) -> None:
        pass
