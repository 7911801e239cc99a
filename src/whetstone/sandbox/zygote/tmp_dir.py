"""The one writable directory of the runs: each finds it as if nobody had been there before."""

from __future__ import annotations

import ctypes
import os

from . import keeper, kernel, scratch_dir, wire

_PROGRAM_FILE = "main.py"
_CHANGES = kernel.IN_CREATE | kernel.IN_DELETE | kernel.IN_MOVED
_EVENTS = ctypes.create_string_buffer(4096)


class PrivateDirectory:
    """A directory of the host, where there are no mounts of our own: emptied after every run."""

    def __init__(self, path: str) -> None:
        """Make it the working directory, which runs inherit."""
        self._path = path
        os.chdir(path)

    def clear(self) -> None:
        """Remove what a run left. Raises OSError."""
        scratch_dir.empty_directory(self._path)
        os.utime(self._path)


class PrivateMount:
    """A small file system on /tmp: kept as long as no name in it is made or removed, else replaced.

    Most programs do nothing there, and a mount costs more than asking the kernel whether they did. A file
    that they made and removed would show in the number of the next one; so a fresh mount has the numbers that
    the one before had, and the program's own file is not made for each run. What can be changed without a
    name (the modes, times and contents of the directory and of this file) is set again.
    """

    def __init__(self, path: str, *, program_file: bool) -> None:
        """Make it the working directory, which runs inherit. The way to the keeper is in its place."""
        self._path = path
        self._program_file = program_file
        self._enter()

    def _enter(self) -> None:
        os.chdir(self._path)
        if self._program_file:
            os.close(os.open(_PROGRAM_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # Where the kernel has no more of these, or none at all, every run gets a fresh mount.
        self._watched = kernel.watch_once(wire.WATCH_FD, ".", _CHANGES)

    def clear(self) -> None:
        """Let the next run find it fresh. Raises StepRefused when the keeper cannot help, OSError."""
        if not self._watched or kernel.read_now(wire.WATCH_FD, _EVENTS, len(_EVENTS)) > 0:
            os.chdir("/")  # nothing is to hold the old one, whose device number the new one gets
            keeper.ask_for_fresh_tmp()
            self._enter()
            return
        os.chmod(self._path, 0o700)
        os.utime(self._path)
        if self._program_file:
            os.chmod(_PROGRAM_FILE, 0o644)
            os.truncate(_PROGRAM_FILE, 0)
            os.utime(_PROGRAM_FILE)
