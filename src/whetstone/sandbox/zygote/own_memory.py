"""This process's memory as the kernel tells it: its mappings, and the pages that it shares with no other.

What tells it is opened early: where the fork-server serves there is no /proc any more.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import wire

PAGE = os.sysconf("SC_PAGE_SIZE")
READ, CODE, DATA = b"r--p", b"r-xp", b"rw-p"
_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+)", re.ASCII)
# Bits of an entry in /proc/PID/pagemap: in memory, of a file, and mapped by no other process.
_PRESENT, _OF_FILE, _UNSHARED = 1 << 63, 1 << 61, 1 << 56


class Mapping(NamedTuple):
    """One mapping."""

    start: int
    end: int
    rights: bytes
    inode: int
    """0 where no file is mapped."""


class OwnMemory:
    """The open files that tell. A machine that does not show them only loses speed."""

    def __init__(self) -> None:
        """Open them."""
        self.descriptors: dict[int, int] = {}
        """What is open, and what else belongs to our memory, by the number in ``wire`` that it is to get."""
        for number, name in ((wire.MAPPINGS_FD, "maps"), (wire.PAGES_FD, "pagemap")):
            with contextlib.suppress(OSError):
                self.descriptors[number] = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def were_moved(self) -> None:
        """The descriptors have got their numbers."""
        self.descriptors = {number: number for number in self.descriptors}

    def mappings(self) -> list[Mapping]:
        """All there are now; none where they are not shown."""
        fd = self.descriptors.get(wire.MAPPINGS_FD)
        if fd is None:
            return []
        os.lseek(fd, 0, os.SEEK_SET)
        parts: list[bytes] = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return [_parsed(line) for line in b"".join(parts).splitlines()]

    def close(self) -> None:
        """Close what tells."""
        for number in (wire.MAPPINGS_FD, wire.PAGES_FD):
            with contextlib.suppress(KeyError):
                os.close(self.descriptors.pop(number))


class Look:
    """A look at the written pages of this process. All is ready for it: looking itself writes few."""

    def __init__(self, memory: OwnMemory, mappings: Sequence[Mapping]) -> None:
        """Of these mappings, the table of pages must be there."""
        self._fd = memory.descriptors[wire.PAGES_FD]
        self._tables = [(m.start, bytearray(8 * ((m.end - m.start) // PAGE))) for m in mappings]
        self._reads = [([table], start // PAGE * 8) for start, table in self._tables]

    def take(self) -> None:
        """Look now."""
        for room, offset in self._reads:
            os.preadv(self._fd, room, offset)

    def unshared(self) -> Iterator[int]:
        """The addresses of written pages that no other process shared then."""
        for start, table in self._tables:
            for at, (entry,) in enumerate(struct.iter_unpack("=Q", table)):
                if entry & (_PRESENT | _OF_FILE | _UNSHARED) == _PRESENT | _UNSHARED:
                    yield start + at * PAGE


def _parsed(line: bytes) -> Mapping:
    found = _LINE.match(line)
    assert found is not None, line
    return Mapping(int(found[1], 16), int(found[2], 16), found[3], int(found[4]))
