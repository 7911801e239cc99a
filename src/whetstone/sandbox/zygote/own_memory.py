"""The memory of the template process: its mappings, its written pages, and what makes a fork of it cheap.

- Mappings of a shared library are merged: every fork copies them and every exit removes them. A library has
  five: headers, code, constants, relocated constants and data, each with its own rights. If constants are
  executable and relocated constants writable, two mappings remain. These rights protect a process from its
  own bugs. The sandbox does not depend on them.
- The interpreter's own code is copied into huge pages. A fork inherits no page table entries for pages of a
  file, so each group of them costs a page fault. It inherits a huge page as a whole.
- Pages that every run writes are copied during the fork, instead of one page fault at a time. A fork shares
  all pages and copies each one at its first write. The page fault costs more than the copy. Every run writes
  a few hundred pages, which contain the interpreter's most used objects and their reference counts. The
  kernel copies a page during the fork if it is pinned for direct access by a device. So these pages are
  pinned as registered buffers of an io_uring, which has no other use. The seccomp filters allow no io_uring
  call, neither to the serving template process nor to a run.

On a machine that forbids any of this, as many containers do, runs are only slower. The files in /proc are
opened early, because the serving fork-server has no /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from . import kernel, wire

PAGE = os.sysconf("SC_PAGE_SIZE")
_HUGE = 2 << 20
READ, CODE, DATA = b"r--p", b"r-xp", b"rw-p"
_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+)", re.ASCII)
# Bits of an entry in /proc/PID/pagemap: in memory, of a file, and mapped by no other process.
_PRESENT, _OF_FILE, _UNSHARED = 1 << 63, 1 << 61, 1 << 56
_REGISTER_BUFFERS = 0
_MOST_BUFFERS = 1024
_PARAMETERS_BYTES = 120


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


def merge_mappings(memory: OwnMemory) -> None:
    """Merge adjacent mappings of the same library. Raises StepRefused."""
    mappings = memory.mappings()
    for at, (start, end, rights, inode) in enumerate(mappings):
        if rights != READ or inode == 0:
            continue
        near = [mappings[i] for i in (at + 1, at - 1) if 0 <= i < len(mappings)]
        kinds = {
            kind for first, last, kind, owner in near if owner == inode and (first == end or last == start)
        }
        if DATA in kinds:
            kernel.protect(start, end - start, kernel.PROT_READ | kernel.PROT_WRITE)
        elif CODE in kinds:
            kernel.protect(start, end - start, kernel.PROT_READ | kernel.PROT_EXEC)


def use_huge_pages(memory: OwnMemory) -> None:
    """Move code into huge pages, as far as it fills whole ones. Does nothing on a machine without them."""
    for mapping in memory.mappings():
        start, end = -(-mapping.start // _HUGE) * _HUGE, mapping.end // _HUGE * _HUGE
        if mapping.rights == CODE and mapping.inode and start < end:
            with contextlib.suppress(kernel.StepRefused):
                _replace(start, end - start)


def _replace(start: int, size: int) -> None:
    """Replace this code by a copy. The code is running, so it must be replaced by a single system call."""
    room = kernel.map_anonymous(size + _HUGE)
    copy = -(-room // _HUGE) * _HUGE
    try:
        kernel.advise(copy, size, kernel.MADV_HUGEPAGE, "huge pages")
        ctypes.memmove(copy, start, size)
        kernel.advise(copy, size, kernel.MADV_COLLAPSE, "huge pages")  # refused unless they are
        kernel.protect(copy, size, kernel.PROT_READ | kernel.PROT_EXEC)
        kernel.move_mapping(copy, size, start)
    except kernel.StepRefused:
        kernel.unmap(room, size + _HUGE)
        raise
    # Free the unaligned ends around the copy.
    kernel.unmap(room, copy - room)
    kernel.unmap(copy + size, room + _HUGE - copy)


def open_ring() -> dict[int, int]:
    """Return ``{descriptor number in wire: open io_uring}``, or an empty dict if the machine forbids it.

    Call it before privileges are dropped: root may pin any amount, other users RLIMIT_MEMLOCK bytes.
    """
    parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
    with contextlib.suppress(kernel.StepRefused):
        fd = kernel.system_call("io_uring_setup", (1, ctypes.addressof(parameters)), "io_uring")
        os.set_inheritable(fd, False)
        return {wire.PINS_FD: fd}
    return {}


def pin_pages(pages: Iterable[int]) -> None:
    """Pin the pages at these addresses until this process ends. Raises StepRefused."""
    # One buffer for each span of adjacent pages: the kernel limits the number of buffers.
    spans: list[tuple[int, int]] = []
    for page in sorted(pages):
        start = spans.pop()[0] if spans and spans[-1][1] == page else page
        spans.append((start, page + PAGE))
    del spans[_MOST_BUFFERS:]
    buffers = b"".join(struct.pack("=QQ", start, end - start) for start, end in spans)
    room = ctypes.create_string_buffer(buffers, len(buffers))
    arguments = (wire.PINS_FD, _REGISTER_BUFFERS, ctypes.addressof(room), len(spans))
    kernel.system_call("io_uring_register", arguments, "pinning pages")
