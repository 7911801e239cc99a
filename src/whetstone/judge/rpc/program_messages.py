"""In the test process: what the messages on the link may and must contain.

The test's messages lose memory addresses. Of the program's messages during a unit, there is a digest, to
compare them with those of another run.

A test may send requests after it found an error, and so tell the program that it was wrong. A time limit that
the program then causes must not give it another answer. So the run that confirms the limit must begin with
the messages of the first run. Objects are numbered in the order in which a unit meets them, so that the
numbers do not depend on earlier units of the process.
"""

from __future__ import annotations

import gc
import importlib
import re
from types import BuiltinMethodType, MethodWrapperType
from typing import Any, cast

from whetstone.judge.value_reader import TAGS, Reader, table
from whetstone.judge.values import encode

# The first messages of a unit, up to this number of bytes, are renumbered. Later ones enter the digest
# unchanged.
_MAX_RENUMBERED_BYTES = 1 << 20
# The garbage collector may track a method of these types without the object that it belongs to.
_BOUND_METHOD_TYPES = frozenset({BuiltinMethodType, MethodWrapperType})
_ADDRESS = re.compile(rb"(?<= at 0x)[0-9a-f]{7,16}")


def _items(reader: Reader, depth: int) -> Any:
    return ["items", reader.items(depth)]


def _pairs(reader: Reader, depth: int) -> Any:
    return ["pairs", reader.items(depth, 2)]


# Sets and dicts stay in the order of the message, because hashes are random here.
_IN_ORDER = table(TAGS | dict.fromkeys((b"S", b"Z"), _items) | dict.fromkeys((b"d", b"O", b"C"), _pairs))


class ProgramMessages:
    """The messages of the program since a unit began. Adding one costs almost nothing."""

    def __init__(self) -> None:
        self._digest: Any = None
        self.begin(None)

    def begin(self, expected: list[Any] | None) -> None:
        """Begin another unit. ``expected``: the ``summary`` of an earlier run of the unit, or None."""
        self._pending: list[bytes] = []
        self._bytes = self._count = 0
        self._digest = None
        self._order_numbers: dict[tuple[str, int], int] = {}
        self._expected = expected
        self.differs = False

    def add(self, message: bytes) -> bool:
        """Add a message.

        Returns False if the messages differ from those of the earlier run, as far as that one got.
        """
        self._count += 1
        self._bytes += len(message)
        self._pending.append(message)
        if self._bytes > _MAX_RENUMBERED_BYTES:
            self._update_digest()
        if self._expected is not None and self._count == self._expected[0]:
            self.differs = self.summary() != self._expected
        return not self.differs

    def summary(self) -> list[Any]:
        """Return ``[number of messages, digest]``."""
        self._update_digest()
        return [self._count, self._digest.digest()]

    def is_incomplete(self) -> bool:
        """Return whether the earlier run had more messages."""
        return self._expected is not None and self._count < self._expected[0]

    def _update_digest(self) -> None:
        if self._digest is None:
            # Created only on demand, because most runs never need it. hashlib would load a library of
            # ciphers.
            self._digest = importlib.import_module("_blake2").blake2b(digest_size=16)
        for message in self._pending:
            data = message if self._bytes > _MAX_RENUMBERED_BYTES else self._renumbered(message)
            self._digest.update(len(data).to_bytes(8, "little") + data)
        self._pending.clear()

    def _renumbered(self, message: bytes) -> bytes:
        try:
            return message[:1] + encode(self._read(message[1:]))
        # A malformed message, which ends the link.
        except Exception:
            return message

    def _read(self, data: bytes) -> Any:
        content = Reader(data, self._named, _IN_ORDER).value()
        match content:
            case ["call", int() as number, *rest]:
                return ["call", self._order("callback", number), *rest]
            case ["object", operation, int() as number, *rest]:
                return ["object", operation, self._order("own", number), *rest]
            case [["raised", [_, base], *rest], *others]:
                return [["raised", base, *rest], *others]
            case [["returned", value, bytes() as changes], *others]:
                return [["returned", value, self._read_changes(changes)], *others]
            case _:
                return content

    def _read_changes(self, data: bytes) -> Any:
        nodes, forgotten = Reader(data, self._named, _IN_ORDER).value()
        renumbered = [(self._order("held", number), kind, change) for number, kind, change in nodes]
        return renumbered, [self._order("held", number) for number in forgotten]

    def _named(self, name: object) -> object:
        match name:
            case ["object", int() as number, flags, _, labels]:
                return ["object", self._order("object", number), flags, labels]
            case ["value", tag, parts, fallback]:
                return ["value", tag, parts, self._named(fallback)]
            case ["record", described, _, number]:
                return ["record", described, number and self._order("object", cast("int", number))]
            case ["object_of_yours" | "yours" | "held" as kind, int() as number]:
                return [kind, self._order(kind, number)]
            case _:
                return name

    def _order(self, kind: str, number: int) -> int:
        return self._order_numbers.setdefault((kind, number), len(self._order_numbers))


def without_addresses(message: bytes) -> bytes:
    """Return a message without the memory addresses in it.

    The default text of an object or a function contains its address, and test code may send such a text. Only
    numbers that are addresses of objects are removed.
    """
    if b" at 0x" not in message:
        return message
    # The fork-server froze the objects that it loaded. The collector must list their addresses too.
    gc.unfreeze()
    objects = gc.get_objects()
    addresses = {
        *map(id, objects),
        *(id(method.__self__) for method in objects if type(method) in _BOUND_METHOD_TYPES),
    }
    return _ADDRESS.sub(
        lambda found: b"0" * len(found[0]) if int(found[0], 16) in addresses else found[0], message
    )
