"""Fewer and larger mappings in the process that forks: every fork copies them, and every exit removes them.

A shared library takes five: headers, code, constants, relocated constants and data, each with its own
rights. The constants may as well be executable and the relocated ones writable, which leaves two. These
rights protect a process from itself; they are no part of what holds a program.

What remains of the interpreter's own code is copied into huge pages. Of a file's pages, a fork inherits
none: it meets each few of them again, at the cost of a fault. A huge page is inherited whole.
"""

from __future__ import annotations

import contextlib
import ctypes

from . import kernel
from .own_memory import CODE, DATA, READ, OwnMemory

_HUGE = 2 << 20


def merge(memory: OwnMemory) -> None:
    """Join what libraries keep apart. Raises StepRefused."""
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
    """Put code into huge pages, as far as it fills any; a machine that has none to give keeps it as it is."""
    for mapping in memory.mappings():
        start, end = -(-mapping.start // _HUGE) * _HUGE, mapping.end // _HUGE * _HUGE
        if mapping.rights == CODE and mapping.inode and start < end:
            with contextlib.suppress(kernel.StepRefused):
                _replace(start, end - start)


def _replace(start: int, size: int) -> None:
    """Have a copy take the place of this code, which runs meanwhile: it is one step for the kernel."""
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
    kernel.unmap(room, copy - room)
    kernel.unmap(copy + size, room + _HUGE - copy)
