"""The one writable directory of the runs: each finds it as if nobody had been there before."""

from __future__ import annotations

import os
import socket

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

    Most programs do nothing there, and a mount costs more than looking. What a look must find is not only
    a file that was left: a file made and removed again shows in the numbers of the files after it, and
    a program can set the times and the mode of the directory itself.
    """

    def __init__(self, path: str, requests: socket.socket) -> None:
        """Make it the working directory, which runs inherit. ``requests`` leads to the keeper."""
        self._path = path
        self._requests = requests
        self._enter()

    def _enter(self) -> None:
        os.chdir(self._path)
        state = os.stat(".")
        self._owner = state.st_mode, state.st_uid, state.st_gid
        self._inode = _next_inode()

    def clear(self) -> None:
        """Let the next run find it fresh. Raises StepRefused when the keeper cannot help."""
        try:
            untouched = self._is_untouched()
        except OSError:
            untouched = False
        if not untouched:
            keeper.ask_for_fresh_tmp(self._requests)
            self._enter()

    def _is_untouched(self) -> bool:
        """Whether nothing was done here but to write a program's own file, which is removed."""
        names = os.listdir(".")
        if names:
            os.unlink(_PROGRAM_FILE)
        if len(names) > 1:
            return False
        state = os.stat(".")
        expected = self._inode + len(names) + 1
        self._inode = _next_inode()
        os.utime(".")
        return self._inode == expected and (state.st_mode, state.st_uid, state.st_gid) == self._owner


def _next_inode() -> int:
    """The number that a new file gets here: the kernel counts them up."""
    fd = os.open(_PROGRAM_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)
        os.unlink(_PROGRAM_FILE)
