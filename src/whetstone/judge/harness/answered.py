"""In the testing process: what the program has said during a unit, in short, to hold another run against.

A test may ask again before it fails, and so tell the program that it was wrong. A time limit that it then
brings about must give it no other answer: the run that confirms the limit has to say the same as far as the
first one came. Numbers of objects count in the order in which a unit meets them, so that they are the same in
a process that ran other units before.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from whetstone.judge.value_reader import TAGS, Reader, table
from whetstone.judge.values import encode

_MOST_READ = 1 << 20
"""Bytes of a unit's messages that are kept and read again; what comes after them is taken as it is."""


def _items(reader: Reader, depth: int) -> Any:
    return ["items", reader.items(depth)]


def _pairs(reader: Reader, depth: int) -> Any:
    return ["pairs", reader.items(depth, 2)]


# Sets and dicts in the order of the message: here hashes are drawn at random.
_IN_ORDER = table(TAGS | dict.fromkeys((b"S", b"Z"), _items) | dict.fromkeys((b"d", b"O", b"C"), _pairs))


class Answered:
    """The messages of the program since a unit began. Taking one costs next to nothing."""

    def __init__(self) -> None:
        self._digest: Any = None
        self.begin(None)

    def begin(self, expected: list[Any] | None) -> None:
        """Another unit begins, of which an earlier run gave ``expected`` in ``short``."""
        self._kept: list[bytes] = []
        self._bytes = self._count = 0
        self._digest = None
        self._met: dict[tuple[str, int], int] = {}
        self._expected = expected
        self.differs = False

    def take(self, message: bytes) -> bool:
        """A message came. Returns whether it may be what came in the earlier run, as far as that got."""
        self._count += 1
        self._bytes += len(message)
        self._kept.append(message)
        if self._bytes > _MOST_READ:
            self._fold()
        if self._expected is not None and self._count == self._expected[0]:
            self.differs = self.short() != self._expected
        return not self.differs

    def short(self) -> list[Any]:
        """``[number of messages, digest]``."""
        self._fold()
        return [self._count, self._digest.digest()]

    def fell_short(self) -> bool:
        """Whether the earlier run got more of it."""
        return self._expected is not None and self._count < self._expected[0]

    def _fold(self) -> None:
        if self._digest is None:
            # Not before it is needed: most runs never do. By itself: hashlib would load a library of ciphers.
            self._digest = importlib.import_module("_blake2").blake2b(digest_size=16)
        for message in self._kept:
            told = message if self._bytes > _MOST_READ else self._renumbered(message)
            self._digest.update(len(told).to_bytes(8, "little") + told)
        self._kept.clear()

    def _renumbered(self, message: bytes) -> bytes:
        try:
            return message[:1] + encode(self._read(message[1:]))
        except Exception:  # nonsense, which ends the link
            return message

    def _read(self, data: bytes) -> Any:
        said = Reader(data, self._named, _IN_ORDER).value()
        match said:
            case ["call", int() as number, *rest]:
                return ["call", self._order("callback", number), *rest]
            case ["object", operation, int() as number, *rest]:
                return ["object", operation, self._order("own", number), *rest]
            case [["raised", [_, base], *rest], *others]:
                return [["raised", base, *rest], *others]
            case [["returned", value, bytes() as changes], *others]:
                return [["returned", value, self._read_changes(changes)], *others]
            case _:
                return said

    def _read_changes(self, data: bytes) -> Any:
        nodes, forgotten = Reader(data, self._named, _IN_ORDER).value()
        told = [(self._order("held", number), kind, change) for number, kind, change in nodes]
        return told, [self._order("held", number) for number in forgotten]

    def _named(self, name: object) -> object:
        match name:
            case ["object", int() as number, flags, _, labels]:
                return ["object", self._order("object", number), flags, labels]
            case ["record", described, _, number]:
                return ["record", described, number and self._order("object", cast("int", number))]
            case ["object_of_yours" | "yours" | "held" as kind, int() as number]:
                return [kind, self._order(kind, number)]
            case _:
                return name

    def _order(self, kind: str, number: int) -> int:
        return self._met.setdefault((kind, number), len(self._met))
