"""The one writable directory of the runs: each finds it as if nobody had been there before."""

from __future__ import annotations

import os

from . import keeper, scratch

_PROGRAM_FILE = "main.py"


class PrivateDirectory:
    """A directory of the host, where there are no mounts of our own: emptied after every run."""

    def __init__(self, path: str) -> None:
        """Make it the working directory, which runs inherit."""
        self._path = path
        os.chdir(path)

    def clear(self) -> None:
        """Remove what a run left. Raises OSError."""
        scratch.empty_directory(self._path)
        os.utime(self._path)


class PrivateMount:
    """A small file system on /tmp: kept as long as runs do nothing there, else replaced by a fresh one.

    Most programs do nothing there, and a mount costs more than looking. A file that was made and removed
    again shows in the number of the next one. What a program can set on the directory itself (its mode, its
    times) is set again.
    """

    def __init__(self, path: str) -> None:
        """Make it the working directory, which runs inherit. The way to the keeper is in its place."""
        self._path = path
        self._enter()

    def _enter(self) -> None:
        os.chdir(self._path)
        self._inode = _next_inode()

    def clear(self) -> None:
        """Let the next run find it fresh. Raises StepRefused when the keeper cannot help."""
        try:
            untouched = self._is_untouched()
        except OSError:
            untouched = False
        if not untouched:
            keeper.ask_for_fresh_tmp()
            self._enter()

    def _is_untouched(self) -> bool:
        """Whether nothing was made here but a program's own file, which is removed."""
        names = os.listdir(".")
        if names:
            os.unlink(_PROGRAM_FILE)
        if len(names) > 1:
            return False
        os.chmod(".", 0o700)
        expected = self._inode + len(names) + 1
        self._inode = _next_inode()
        os.utime(".")
        return self._inode == expected


def _next_inode() -> int:
    """The number that a new file gets here: the kernel counts them up."""
    fd = os.open(_PROGRAM_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)
        os.unlink(_PROGRAM_FILE)
