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

# Each large band costs a comparison of all elements.
_LARGE_BANDS = 3
# The first bands are dense while one in so many of their elements changes.
_DENSE = 1.5
# The changes of a dense band. Fewer share a band, since each band has compressed arrays with a fixed cost.
_BAND_CHANGES = 1024
# Bits of the arrays of a band that do not depend on the number of changes.
_BAND_BITS = 512
# To choose the bands, so many of each run of elements are counted.
_SAMPLED, _RUN = 1 << 10, 1 << 17
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
    scale = sum(map(len, old)) / max(len(before), 1)
    found = magnitudes(before)
    sizes = np.bincount(found, minlength=256) * scale
    changes = np.bincount(found[before != after], minlength=256) * scale
    dense = np.flatnonzero((np.cumsum(changes) * _DENSE >= np.cumsum(sizes)) & (sizes > 0))
    edge = int(dense[-1]) + 1 if len(dense) else 0
    limits = [*_dense_limits(changes[:edge].tolist()), *([edge] if 0 < edge < 256 else [])]
    count = len(limits) + (edge == 256)
    large = [(size, change, n) for n, (size, change) in enumerate(zip(sizes.tolist(), changes.tolist(), strict=True)) if n >= edge and size]
    return Bands((*limits, *_large_limits(large)), count)


def _sample(blocks: Sequence[Elements]) -> Elements:
    return np.concatenate([b[start : start + _SAMPLED] for b in blocks for start in range(0, len(b), _RUN)])


def _dense_limits(changes: Sequence[float]) -> list[int]:
    limits: list[int] = []
    total = 0.0
    for magnitude, change in enumerate(changes):
        if total >= _BAND_CHANGES and sum(changes[magnitude:]) >= _BAND_CHANGES:
            limits.append(magnitude)
            total = 0.0
        total += change
    return limits


def _large_limits(bands: list[tuple[float, float, int]]) -> list[int]:
    """Merge bands of one magnitude each (elements, changes, magnitude) where that costs the fewest bits."""
    while len(bands) > 1:
        merged = [(a[0] + b[0], a[1] + b[1], a[2]) for a, b in zip(bands, bands[1:])]
        losses = [_bits(*m) - _bits(*a) - _bits(*b) for m, a, b in zip(merged, bands, bands[1:])]
        least = min(losses)
        if len(bands) <= _LARGE_BANDS and least > _BAND_BITS:
            break
        n = losses.index(least)
        bands = [*bands[:n], merged[n], *bands[n + 2 :]]
    return [magnitude for _, _, magnitude in bands[1:]]


def _bits(elements: float, changes: float, _: int) -> float:
    """Return the entropy of which elements change."""
    return -sum(n * math.log2(n / elements) for n in (changes, elements - changes) if n > 0)


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
