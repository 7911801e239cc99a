"""Fewer mappings in the process that forks: every fork copies each of them, and every exit removes it.

A shared library takes five: headers, code, constants, relocated constants and data, each with its own
rights. The constants may as well be executable and the relocated ones writable, which leaves two. These
rights protect a process from itself; they are no part of what holds a program.
"""

from __future__ import annotations

import contextlib
import os
import re

from . import kernel

_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+)", re.ASCII)
_READ, _CODE, _DATA = b"r--p", b"r-xp", b"rw-p"


class Mappings:
    """This process's own list of mappings, which stays readable where there is no /proc any more."""

    def __init__(self) -> None:
        """Open it; a machine that does not show it only loses the speed."""
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)

    def merge(self) -> None:
        """Join what libraries keep apart, and close the list."""
        if self._fd < 0:
            return
        mappings = [_parsed(line) for line in self._text().splitlines()]
        os.close(self._fd)
        self._fd = -1
        for at, (start, end, rights, inode) in enumerate(mappings):
            if rights != _READ or inode == 0:
                continue
            near = [mappings[i] for i in (at + 1, at - 1) if 0 <= i < len(mappings)]
            kinds = {
                kind
                for first, last, kind, owner in near
                if owner == inode and (first == end or last == start)
            }
            if _DATA in kinds:
                kernel.protect(start, end - start, kernel.PROT_READ | kernel.PROT_WRITE)
            elif _CODE in kinds:
                kernel.protect(start, end - start, kernel.PROT_READ | kernel.PROT_EXEC)

    def _text(self) -> bytes:
        parts: list[bytes] = []
        while part := os.read(self._fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)


def _parsed(line: bytes) -> tuple[int, int, bytes, int]:
    """(start, end, rights, inode) of one mapping."""
    found = _LINE.match(line)
    assert found is not None, line
    return int(found[1], 16), int(found[2], 16), found[3], int(found[4])
