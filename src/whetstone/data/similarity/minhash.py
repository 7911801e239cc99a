"""MinHash signatures and locality-sensitive hashing: which of many sets are alike, without all pairs.

One permutation hashing (Li, Owen, Zhang 2012, arXiv 1208.1259): each element is hashed once, into one
of ``SIZE`` bins, and every bin keeps its smallest value. An empty bin borrows from one that is not, found by
hashing (Shrivastava 2017, arXiv 1703.04664), so that short sets have whole signatures as well. The share of
equal values estimates the Jaccard similarity, with a standard error of at most 0.5 / sqrt(64) = 0.063.

This is a page of plain Python on purpose: the libraries for it (datasketch: numpy and scipy; rensa: compiled)
would be a dependency of the base install, for signatures that only propose pairs: every pair is then
compared exactly, by whoever asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

SIZE = 64
"""Values in a signature; 256 bytes a set."""


def signature(elements: Iterable[int]) -> array[int]:
    """The signature of a set of 64-bit hashes; an empty set has an empty one."""
    bins: dict[int, int] = {}
    for element in elements:
        place, value = element % SIZE, element // SIZE & 0xFFFFFFFF
        if value < bins.get(place, 1 << 32):
            bins[place] = value
    return array("I", (bins[_donor(place, bins)] for place in range(SIZE)) if bins else ())


def estimate(a: Sequence[int], b: Sequence[int]) -> float:
    """The estimated Jaccard similarity of two sets by their signatures."""
    if not a or not b:
        return 0.0
    return sum(x == y for x, y in zip(a, b, strict=True)) / SIZE


def buckets(signatures: Sequence[array[int]], near: float) -> Iterator[list[int]]:
    """Groups of positions whose sets may be alike: those that share a band of their signatures.

    Two sets of similarity s meet in one of 64 / r bands of r values with probability
    1 - (1 - s^r)^(64 / r): at least 0.999 for s = ``near``, which decides r. Pairs may meet several
    times; one band at a time is held in memory.
    """
    rows = 4 if near >= 0.78 else 2 if near >= 0.46 else 1
    for start in range(0, SIZE, rows):
        band: dict[bytes, list[int]] = {}
        for position, values in enumerate(signatures):
            if values:
                band.setdefault(values[start : start + rows].tobytes(), []).append(position)
        yield from (group for group in band.values() if len(group) > 1)


def _donor(place: int, bins: dict[int, int]) -> int:
    """The bin whose value stands at ``place``: itself, or, for an empty one, the same for all sets that
    fill the bins that are tried."""
    attempt = 0
    tried = place
    while tried not in bins:
        attempt += 1
        # A fixed mixing of both numbers (the multiplier and shift of splitmix64).
        mixed = (place * 0x9E3779B97F4A7C15 + attempt * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        tried = (mixed ^ mixed >> 31) % SIZE
    return tried
