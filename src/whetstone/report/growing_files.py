"""Files that are read again and again while another process writes them: only what changed is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

Stamp = tuple[int, int, int]
StampedFile = tuple[Path, Stamp]
Value = TypeVar("Value")


def file_stamp(path: Path) -> Stamp | None:
    """Return a stamp of the contents of a file; None for a missing file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


def stamped(paths: Iterable[Path]) -> list[StampedFile]:
    """Return the present files with their stamps."""
    return [(path, stamp) for path in paths if (stamp := file_stamp(path))]


class FileCache(Generic[Value]):
    """A value of each file, which is computed again only if the file changes."""

    def __init__(self, compute: Callable[[Path], Value]) -> None:
        self._compute = compute
        self._values: dict[StampedFile, Value] = {}

    def values(self, files: Iterable[StampedFile]) -> list[Value]:
        """Return the values of these files. Those of other files are forgotten."""
        known = self._values
        self._values = {file: known[file] if file in known else self._compute(file[0]) for file in files}
        return [*self._values.values()]


class LineTail:
    """The complete lines of a file that grows. ``end`` is the position up to which it was read, in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = self.inode = 0

    def added(self, on_restart: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that were added since the last call, each with its position.

        A file that was replaced or shortened is read again, and a missing file has no lines; ``on_restart``
        is called before.
        """
        try:
            file = self.path.open("rb")
        except OSError:
            self.end = self.inode = 0
            on_restart()
            return
        with file:
            state = os.fstat(file.fileno())
            if state.st_ino != self.inode or state.st_size < self.end:
                self.end, self.inode = 0, state.st_ino
                on_restart()
            file.seek(self.end)
            for line in file:
                # The last line is incomplete while a writer appends it.
                if line.endswith(b"\n"):
                    yield self.end, line
                    self.end += len(line)
