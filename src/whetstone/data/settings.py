"""Which problems a run trains and is evaluated on."""

from __future__ import annotations

from whetstone.settings import Natural, Section


class DataSection(Section):
    """Problem sets: a JSONL or Parquet file, or a set that ships: ``builtin:train``, ``builtin:heldout``,
    ``micro:train``, ``micro:heldout``.

    difficulty: train only on problems whose ``meta.difficulty`` is one of these; empty trains on all.
    max_problems: train on a seeded subset of at most so many; 0 takes all.
    """

    train: str = "builtin:train"
    heldout: str = "builtin:heldout"
    difficulty: tuple[str, ...] = ()
    max_problems: Natural = 0
