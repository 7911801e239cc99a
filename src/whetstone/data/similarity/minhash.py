"""MinHash signatures and locality-sensitive hashing: find similar sets without comparing all pairs.

One permutation hashing (Li, Owen, Zhang 2012, arXiv 1208.1259): each element is hashed once, into one of
``SIZE`` bins, and every bin keeps its smallest value. An empty bin copies from another one, which hashing
selects (Shrivastava 2017, arXiv 1703.04664). So short sets also have complete signatures. The share of equal
values estimates the Jaccard similarity. Its standard error is at most 0.5 / sqrt(filled bins): 0.063 for sets
that fill all 64 bins.

This is plain Python, because the libraries (datasketch: numpy and scipy; rensa: compiled) would be
dependencies of the base install. Signatures only propose pairs; the caller compares every pair exactly.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

# Values in a signature; 256 bytes a set.
SIZE = 64


def signature(elements: Iterable[int]) -> array[int]:
    """Return the signature of a set of 64-bit hashes. An empty set has an empty one."""
    bins: dict[int, int] = {}
    for element in elements:
        # Place and value use different bits of the hash, so they are independent.
        place, value = element % SIZE, element // SIZE & 0xFFFFFFFF
        if value < bins.get(place, 1 << 32):
            bins[place] = value
    return array("I", (bins[_donor(place, bins)] for place in range(SIZE)) if bins else ())


def estimate(a: Sequence[int], b: Sequence[int]) -> float:
    """Return the estimated Jaccard similarity of two sets from their signatures."""
    if not a or not b:
        return 0.0
    return sum(x == y for x, y in zip(a, b, strict=True)) / SIZE


def buckets(signatures: Sequence[array[int]], near: float) -> Iterator[list[int]]:
    """Yield groups of positions whose sets may be similar: those that share a band of their signatures.

    Two sets of similarity s meet in one of 64 / r bands of r values with probability
    1 - (1 - s^r)^(64 / r): at least 0.999 for s = ``near``, which decides r. Pairs may meet several
    times; one band at a time is held in memory.
    """
    # Longer bands propose fewer dissimilar pairs, but also miss more similar ones.
    rows = 4 if near >= 0.78 else 2 if near >= 0.46 else 1
    for start in range(0, SIZE, rows):
        band: dict[bytes, list[int]] = {}
        for position, values in enumerate(signatures):
            if values:
                band.setdefault(values[start : start + rows].tobytes(), []).append(position)
        yield from (group for group in band.values() if len(group) > 1)


def _donor(place: int, bins: dict[int, int]) -> int:
    """Return the bin whose value stands for ``place``: itself, or for an empty bin a hashed choice, which is
    the same for all sets that fill the tried bins."""
    attempt = 0
    tried = place
    while tried not in bins:
        attempt += 1
        # A fixed mixing of both numbers (the multiplier and shift of splitmix64).
        mixed = (place * 0x9E3779B97F4A7C15 + attempt * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        tried = (mixed ^ mixed >> 31) % SIZE
    return tried
