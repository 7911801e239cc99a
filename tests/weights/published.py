"""A publisher and replicas of a few small tensors of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from whetstone.weights.manifest import Manifest, Mark, dump, load
from whetstone.weights.pieces import whole
from whetstone.weights.publish import Publisher
from whetstone.weights.replica import Prepared, Replica
from whetstone.weights.shelf import Shelf
from whetstone.weights.source import PartKey, Source, Take


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


class Side:
    """A publisher with its shelf."""

    def __init__(self, trained: Trained, **shelf: Any) -> None:
        self.trained = trained
        self.shelf = Shelf(**shelf)
        self.publisher = Publisher("tiny", self.shelf)

    def publish(self, number: int) -> None:
        self.publisher.publish(number, whole(self.trained.tensors(number).items())).result()


def follow(replica: Replica, source: Source, wait_s: float = 0.0) -> list[Prepared]:
    """Go to the newest version, without an engine."""
    steps: list[Prepared] = []
    for manifest in source.plan(replica.mark, wait_s):
        steps.append(replica.prepare(manifest, source.fetch))
        steps[-1].write()
        replica.commit(steps[-1])
    return steps


class ShelfSource:
    """A Source on a shelf of this process. ``damage`` is done to every part; ``fetched`` counts them."""

    def __init__(self, *shelves: Shelf) -> None:
        self.shelves = shelves
        self.fetched = 0
        self.damage: Callable[[bytes], bytes] = bytes

    def plan(self, have: Mark | None, wait_s: float = 0.0) -> list[Manifest]:
        return [load(dump(manifest)) for manifest in self.shelves[0].plan(have, wait_s)]

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], take: Take) -> None:
        for shard, part in parts:
            reading = self.shelves[shard].open(manifest.number, manifest.base and manifest.base.number)
            self.fetched += 1
            take((shard, part), self.damage(reading.part(part)))
            reading.close()

    def close(self) -> None:
        pass
