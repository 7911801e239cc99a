"""Bands of magnitudes, and sets of elements.

The *magnitude* of an element is the 8 bits after its sign bit, which are the exponent of bf16 and fp32. A
*band* is a range of magnitudes. A set of elements is an array of octets with a bit for each element,
lowest bit first.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from whetstone.weights.streams import Elements

# The first bands are dense while at least this share of their elements changes.
_DENSE = 2 / 3
# The fewest changes of a dense band, since each band has compressed arrays with a fixed cost.
_BAND_CHANGES = 1024
# The most large bands, each of which costs a comparison of all elements. There is one more if a smaller share
# than ``_FEW`` of the elements changes, since changes take time too.
_LARGE_BANDS, _FEW = 2, 1 / 64
# The bits that a large band must save.
_BAND_BITS = 512
# Elements that are examined at a time, so that they are in the CPU cache at the next step. A multiple of 8.
TILE = 1 << 19
# The number and the size of the runs of elements that are counted to choose bands.
_SAMPLES, _SAMPLE = 64, 1024
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
# The positions of the set bits of each octet, ascending, and then of the others.
_BIT_POSITIONS = np.argsort(_BITS ^ 1, axis=1, kind="stable").astype(np.uint8)


@dataclass(frozen=True)
class Bands:
    """Adjacent bands that cover all magnitudes, ascending.

    limits: the lowest magnitude of each band but the first. dense: the number of dense bands, which are the
    first ones. Their elements are few, and are sorted by band. The other bands are *large*.
    """

    limits: tuple[int, ...]
    dense: int

    def split(self, elements: Elements) -> list[Elements]:
        """Return the positions of the elements of each band, ascending."""
        bands = self._table.take(_magnitudes(elements))
        order = np.argsort(bands, kind="stable")
        return np.split(order, np.searchsorted(bands.take(order), np.arange(1, len(self.limits) + 1)))

    def sets(self, elements: Elements) -> list[Elements]:
        """Return the set of elements of all dense bands, and the set of each large band, of at most a
        tile."""
        shift = elements.dtype.itemsize * 8 - 8
        flags, unsigned = _scratch(elements)
        np.left_shift(elements, 1, out=unsigned)
        below: list[Elements] = []
        for limit in (0, *self.limits)[self.dense :]:
            np.less(unsigned, unsigned.dtype.type(limit << shift), out=flags)
            below.append(np.packbits(flags, bitorder="little"))
        below.append(_full_set(len(elements)))
        return [below[0], *(upper ^ lower for lower, upper in pairwise(below))]

    @cached_property
    def _table(self) -> Elements:
        """The band of each magnitude."""
        sizes = np.diff((0, *self.limits, 256))
        return np.repeat(np.arange(len(sizes)).astype(np.uint8), sizes)


def choose_bands(old: Sequence[Elements], new: Sequence[Elements]) -> Bands:
    """Choose bands whose elements change about equally often, from a sample of the blocks."""
    before, after = _sample(old), _sample(new)
    magnitudes, scale = _magnitudes(before), sum(map(len, old)) / max(len(before), 1)
    sizes = np.bincount(magnitudes, minlength=256) * scale
    changes = np.bincount(magnitudes[before != after], minlength=256) * scale
    often = np.flatnonzero((np.cumsum(changes) >= _DENSE * np.cumsum(sizes)) & (sizes > 0))
    edge = int(often[-1]) + 1 if len(often) else 0
    limits = _dense_limits(changes[:edge].tolist())
    if 0 < edge < 256:
        limits.append(edge)
    dense = len(limits) + (edge == 256)
    single = [(float(sizes[n]), float(changes[n]), n) for n in range(edge, 256) if sizes[n]]
    most = _LARGE_BANDS + bool(changes.sum() < _FEW * sizes.sum())
    return Bands((*limits, *_large_limits(single, most)), dense)


def changed_set(old: Elements, new: Elements) -> Elements:
    """Return the set of elements that differ, of at most a tile."""
    flags, _ = _scratch(old)
    return np.packbits(np.not_equal(old, new, out=flags), bitorder="little")


def members(octets: Elements) -> Elements:
    """Return the positions of the elements of a set, ascending. If they are few this is faster than
    np.flatnonzero."""
    some = np.flatnonzero(octets != 0)
    within = np.flatnonzero(np.unpackbits(octets[some], bitorder="little").view(bool))
    positions = some[within >> 3]
    positions <<= 3
    within &= 7
    positions += within
    return positions


class RankedSet:
    """A set of elements that are numbered from 0, in order. ``size`` is how many there are."""

    def __init__(self, octets: Elements) -> None:
        padded = np.concatenate([octets, np.zeros(-len(octets) % 8, np.uint8)])
        self._words = padded.view("<u8")
        counts = np.bitwise_count(self._words)
        # The number of elements before each word.
        self._starts = np.zeros(len(counts) + 1, np.uint32)
        np.cumsum(counts, out=self._starts[1:])
        self.size = int(self._starts[-1])

    def ranks(self, positions: Elements) -> Elements:
        """Return the numbers of the elements at these positions."""
        at = positions >> 6
        lower = (np.uint64(1) << (positions & 63).view(np.uint64)) - np.uint64(1)
        lower &= self._words[at]
        return self._starts[at] + np.bitwise_count(lower)

    def positions(self, ranks: Elements) -> Elements:
        """Return the positions of the elements with these numbers."""
        octets = self._words.view(np.uint8)
        counts = np.bitwise_count(octets)
        ends = np.cumsum(counts, dtype=np.uint32)
        at = np.searchsorted(ends, ranks.astype(np.uint32), side="right")
        within = ranks - ends[at] + counts[at]
        return (at << 3) + _BIT_POSITIONS[octets[at], within]


_thread_state = threading.local()


def _scratch(elements: Elements) -> tuple[Elements, Elements]:
    """Return this thread's arrays for a flag and an element of each of ``elements``, with old contents. To
    allocate them takes longer than to compute what they hold."""
    found: tuple[Elements, Elements] | None = getattr(_thread_state, "scratch", None)
    if found is None:
        found = _thread_state.scratch = np.empty(TILE, bool), np.empty(8 * TILE, np.uint8)
    size = len(elements)
    return found[0][:size], found[1][: size * elements.dtype.itemsize].view(elements.dtype)


def _magnitudes(elements: Elements) -> Elements:
    return ((elements << 1) >> (elements.dtype.itemsize * 8 - 8)).astype(np.uint8)


def _full_set(size: int) -> Elements:
    octets = np.full(-(-size // 8), 255, np.uint8)
    octets[size // 8 :] = (1 << size % 8) - 1
    return octets


def _sample(blocks: Sequence[Elements]) -> Elements:
    step = max(sum(map(len, blocks)) // _SAMPLES, _SAMPLE)
    runs = (block[start : start + _SAMPLE] for block in blocks for start in range(0, len(block), step))
    return np.concatenate([blocks[0][:0], *runs])


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
    """Merge bands (elements, changes, lowest magnitude) where that costs the fewest bits, until there are at
    most ``most``. Return the limits between them."""
    while len(bands) > 1:
        pairs = list(pairwise(bands))
        merged = [(a[0] + b[0], a[1] + b[1], a[2]) for a, b in pairs]
        costs = [_entropy(*m) - _entropy(*a) - _entropy(*b) for m, (a, b) in zip(merged, pairs, strict=True)]
        least = min(costs)
        if len(bands) <= most and least > _BAND_BITS:
            break
        n = costs.index(least)
        bands = [*bands[:n], merged[n], *bands[n + 2 :]]
    return [lowest for _, _, lowest in bands[1:]]


def _entropy(elements: float, changes: float, _: int) -> float:
    """Return the bits that say which elements of a band change, if changes are independent."""
    return sum(n * math.log2(elements / n) for n in (changes, elements - changes) if n > 0)
