"""The files and the standard streams of a program, prepared before it starts."""

from __future__ import annotations

import _thread
import contextlib
import os
from collections.abc import Iterable


def write_files(entries: Iterable[tuple[str, int]], data: memoryview) -> None:
    """Write new files with these names and sizes from ``data`` into the working directory.

    A name with ``/`` at its end is an empty directory. Raises OSError, also for an existing name.
    """
    at = 0
    for name, size in entries:
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        if name.endswith("/"):
            continue
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
        end = at + size
        while at < end:
            at += os.write(fd, data[at:end])
        os.close(fd)


def use_as_streams(link_fd: int) -> None:
    """Make a socket the standard input and output."""
    os.dup2(link_fd, 0)
    os.dup2(link_fd, 1)
    os.close(link_fd)


def pipe_input() -> None:
    """Pass standard input, which is a file, through a pipe: asyncio does not watch files."""
    read, write = os.pipe()
    source = os.dup(0)
    os.dup2(read, 0)
    os.close(read)
    _thread.start_new_thread(_feed, (source, write))


def _feed(source: int, write: int) -> None:
    with contextlib.suppress(OSError):  # the program has closed its end
        while data := os.read(source, 1 << 16):
            view = memoryview(data)
            while view:
                view = view[os.write(write, view) :]
    os.close(write)
    os.close(source)
