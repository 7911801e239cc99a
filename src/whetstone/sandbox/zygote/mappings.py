"""Merges the memory mappings of the template process: every fork copies them and every exit removes them.

A shared library has five mappings: headers, code, constants, relocated constants and data, each with its own
rights. If constants are executable and relocated constants writable, two mappings remain. These rights
protect a process from its own bugs. The sandbox does not depend on them.

The interpreter's own code is copied into huge pages. A fork inherits no page table entries for pages of a
file, so each group of them costs a page fault. It inherits a huge page as a whole.
"""

from __future__ import annotations

import contextlib
import ctypes

from . import kernel
from .smaps import CODE, DATA, READ, OwnMemory

_HUGE = 2 << 20


def merge(memory: OwnMemory) -> None:
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
