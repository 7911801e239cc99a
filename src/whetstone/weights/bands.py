"""Bands of magnitudes, and the positions of elements among the elements of their band.

The *magnitude* of an element is the 8 bits after its sign bit, which are the exponent of bf16 and fp32. A *band*
is a range of magnitudes. A set of elements is an array of octets with a bit for each element, lowest bit first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from whetstone.weights.streams import Elements

# The first bands are dense while at least one in so many of their elements changes.
_DENSE = 1.5
# The fewest changes of a dense band, since each band has compressed arrays with a fixed cost.
_BAND_CHANGES = 1024
# A large band costs a comparison of all elements. There are so many, and one more unless one in ``_MANY`` elements
# changes, which takes time too.
_LARGE_BANDS, _MANY = 2, 64
# Bits that a large band must save.
_BAND_BITS = 512
# The number and the size of the runs of elements that are counted to choose the bands.
_SAMPLES, _SAMPLE = 64, 1024
# For each octet, the positions of its set bits, ascending.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BIT_POSITIONS = np.argsort(_BITS ^ 1, axis=1, kind="stable").astype(np.uint8)


@dataclass(frozen=True)
class Bands:
    """Adjacent bands that cover all magnitudes, ascending.

    limits: the lowest magnitude of each band but the first. dense: of so many bands, from the first, the elements
    are sorted. Those of the other, large bands are only counted.
    """

    limits: tuple[int, ...]
    dense: int

    @property
    def count(self) -> int:
        """The number of bands."""
        return len(self.limits) + 1

    def of(self, elements: Elements) -> Elements:
        """Return the band of each element."""
        return self._table.take(magnitudes(elements))

    def sets(self, elements: Elements) -> list[Elements]:
        """Return the set of elements in all dense bands, and the sets of those in each large band."""
        unsigned, shift = elements << 1, elements.dtype.itemsize * 8 - 8
        below = [
            bit_set(unsigned < unsigned.dtype.type(limit << shift)) if limit < 256 else _everything(len(elements))
            for limit in (0, *self.limits, 256)[self.dense :]
        ]
        return [below[0], *(upper ^ lower for lower, upper in pairwise(below))]

    @cached_property
    def _table(self) -> Elements:
        return np.repeat(np.arange(self.count).astype(np.uint8), np.diff((0, *self.limits, 256)))


def _everything(count: int) -> Elements:
    octets = np.full(-(-count // 8), 255, np.uint8)
    octets[count // 8 :] = (1 << (count & 7)) - 1
    return octets


def magnitudes(elements: Elements) -> Elements:
    """Return the magnitude of each element."""
    return ((elements << 1) >> (elements.dtype.itemsize * 8 - 8)).astype(np.uint8)


def choose_bands(old: Sequence[Elements], new: Sequence[Elements]) -> Bands:
    """Choose bands in which elements change about equally often, from a sample of the blocks."""
    before, after = _sample(old), _sample(new)
    found, scale = magnitudes(before), sum(map(len, old)) / max(len(before), 1)
    sizes = np.bincount(found, minlength=256) * scale
    changes = np.bincount(found[before != after], minlength=256) * scale
    often = np.flatnonzero((np.cumsum(changes) * _DENSE >= np.cumsum(sizes)) & (sizes > 0))
    edge = int(often[-1]) + 1 if len(often) else 0
    limits = _dense_limits(changes[:edge].tolist())
    if 0 < edge < 256:
        limits.append(edge)
    dense = len(limits) + (edge == 256)
    few = changes.sum() * _MANY < sizes.sum()
    single = [(float(sizes[n]), float(changes[n]), n) for n in range(edge, 256) if sizes[n]]
    return Bands((*limits, *_large_limits(single, _LARGE_BANDS + few)), dense)


def _sample(blocks: Sequence[Elements]) -> Elements:
    run = max(sum(map(len, blocks)) // _SAMPLES, _SAMPLE)
    return np.concatenate([b[start : start + _SAMPLE] for b in blocks for start in range(0, len(b), run)])


def _dense_limits(changes: Sequence[float]) -> list[int]:
    """Return the limits between dense bands, from the changes of each magnitude."""
    limits: list[int] = []
    here, left = 0.0, sum(changes)
    for magnitude, change in enumerate(changes):
        if min(here, left) >= _BAND_CHANGES:
            limits.append(magnitude)
            here = 0.0
        here, left = here + change, left - change
    return limits


def _large_limits(bands: list[tuple[float, float, int]], most: int) -> list[int]:
    """Merge bands of (elements, changes, lowest magnitude) where this costs the fewest bits. Return limits."""
    while len(bands) > 1:
        pairs = list(pairwise(bands))
        merged = [(one[0] + other[0], one[1] + other[1], one[2]) for one, other in pairs]
        costs = [_bits(*m) - _bits(*one) - _bits(*other) for m, (one, other) in zip(merged, pairs, strict=True)]
        least = min(costs)
        if len(bands) <= most and least > _BAND_BITS:
            break
        n = costs.index(least)
        bands = [*bands[:n], merged[n], *bands[n + 2 :]]
    return [lowest for _, _, lowest in bands[1:]]


def _bits(elements: float, changes: float, _: int = 0) -> float:
    """Return the entropy of which elements change."""
    return sum(n * math.log2(elements / n) for n in (changes, elements - changes) if n > 0)


def bit_set(flags: Elements) -> Elements:
    """Return the set of elements whose flag is True."""
    return np.packbits(flags, bitorder="little")


def members(octets: Elements) -> Elements:
    """Return the positions of the elements of a set, ascending. For few elements this is faster than
    np.flatnonzero."""
    some = np.flatnonzero(octets != 0)
    within = np.flatnonzero(np.unpackbits(octets[some], bitorder="little").view(bool))
    positions = some[within >> 3]
    positions <<= 3
    within &= 7
    positions += within
    return positions


class RankedSet:
    """A set whose elements are numbered in order."""

    def __init__(self, octets: Elements) -> None:
        padded = np.concatenate([octets, np.zeros(-len(octets) % 8, np.uint8)])
        self._words = padded.view("<u8")
        counts = np.bitwise_count(self._words)
        self._starts = np.zeros(len(counts) + 1, np.uint32)
        np.cumsum(counts, out=self._starts[1:])
        self.size = int(self._starts[-1])

    def ranks(self, positions: Elements) -> Elements:
        """Return how many elements of the set are below each position."""
        at = positions >> 6
        below = (np.uint64(1) << (positions & 63).view(np.uint64)) - np.uint64(1)
        below &= self._words[at]
        return self._starts[at] + np.bitwise_count(below)

    def positions(self, ranks: Elements) -> Elements:
        """Return the positions of the elements with these numbers, ascending."""
        octets = self._words.view(np.uint8)
        counts = np.bitwise_count(octets)
        ends = np.cumsum(counts, dtype=np.uint32)
        at = np.searchsorted(ends, ranks.astype(np.uint32), side="right")
        within = ranks - ends[at] + counts[at]
        return (at << 3) + _BIT_POSITIONS[octets[at], within]
