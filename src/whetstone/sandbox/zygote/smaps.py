"""The memory of this process as the kernel reports it: its mappings and its unshared pages.

The files in /proc are opened early, because the serving fork-server has no /proc.
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
    """The open files /proc/self/maps and pagemap. Without them, runs are only slower."""

    def __init__(self) -> None:
        """Open the files, if this machine allows it."""
        self.descriptors: dict[int, int] = {}
        """Open descriptors by their later number in ``wire``: these files and others that must stay open."""
        for number, name in ((wire.MAPPINGS_FD, "maps"), (wire.PAGES_FD, "pagemap")):
            with contextlib.suppress(OSError):
                self.descriptors[number] = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def were_moved(self) -> None:
        """Record that the descriptors now have their numbers in ``wire``."""
        self.descriptors = {number: number for number in self.descriptors}

    def mappings(self) -> list[Mapping]:
        """Return the current mappings, or an empty list if the machine does not show them."""
        fd = self.descriptors.get(wire.MAPPINGS_FD)
        if fd is None:
            return []
        os.lseek(fd, 0, os.SEEK_SET)
        parts: list[bytes] = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return [_parse(line) for line in b"".join(parts).splitlines()]

    def close(self) -> None:
        """Close both files."""
        for number in (wire.MAPPINGS_FD, wire.PAGES_FD):
            with contextlib.suppress(KeyError):
                os.close(self.descriptors.pop(number))


class PageReading:
    """A reading of the page tables of this process. Buffers are allocated first, so it writes few pages."""

    def __init__(self, memory: OwnMemory, mappings: Sequence[Mapping]) -> None:
        """Prepare to read these mappings. ``memory`` must have pagemap open."""
        self._fd = memory.descriptors[wire.PAGES_FD]
        self._tables = [(m.start, bytearray(8 * ((m.end - m.start) // PAGE))) for m in mappings]
        self._reads = [([table], start // PAGE * 8) for start, table in self._tables]

    def take(self) -> None:
        """Read the page tables now."""
        for room, offset in self._reads:
            os.preadv(self._fd, room, offset)

    def unshared(self) -> Iterator[int]:
        """Return the addresses of the written pages that no other process shared at that time."""
        for start, table in self._tables:
            for at, (entry,) in enumerate(struct.iter_unpack("=Q", table)):
                if entry & (_PRESENT | _OF_FILE | _UNSHARED) == _PRESENT | _UNSHARED:
                    yield start + at * PAGE


def _parse(line: bytes) -> Mapping:
    found = _LINE.match(line)
    assert found is not None, line
    return Mapping(int(found[1], 16), int(found[2], 16), found[3], int(found[4]))
