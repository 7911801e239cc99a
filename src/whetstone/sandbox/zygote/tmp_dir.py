"""The only writable directory of the runs. Each run finds it in its initial state.

The template process forks the runs and has no privileges. It requests a fresh /tmp from the supervisor, the
fork-server's outer process, over a socket that no run has. The supervisor outlives the template process and
removes the files that the template process may not remove. It reads no data of a run.
"""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import os
import stat
from collections.abc import Callable
from typing import NoReturn

from . import kernel, wire, workspaces

_PROGRAM_FILE = "main.py"
_CHANGES = kernel.IN_CREATE | kernel.IN_DELETE | kernel.IN_MOVED
_EVENTS = ctypes.create_string_buffer(4096)
_RENEW, _DONE = b"r", b"."
# Requests about workspaces: cover the folder of all of them, and mount one.
HIDE, MOUNT = b"h", b"m"
_MAX_TEXT = 500
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateDirectory:
    """A directory of the host, for a tier without mounts. It is emptied after every run."""

    def __init__(self, path: str) -> None:
        """Make it the working directory, which runs inherit."""
        self._path = path
        os.chdir(path)

    def clear(self) -> None:
        """Remove the files of a run. Raises OSError."""
        empty_directory(self._path)
        os.utime(self._path)


class PrivateMount:
    """A small file system on /tmp. It is replaced after a run that created or removed a name in it.

    Most programs do not use /tmp, and a check by inotify costs less than a mount. A program could detect an
    earlier file by the inode number of its next file, even if the earlier one was removed. So the mount is
    replaced by a fresh one, whose numbers start again. The program's own file is created once per mount. The
    modes, times and contents of the directory and of this file change no name, so they are reset.
    """

    def __init__(self, path: str, *, program_file: bool) -> None:
        """Make it the working directory, which runs inherit. The socket to the supervisor must be open."""
        self._path = path
        self._program_file = program_file
        self._enter()

    def _enter(self) -> None:
        os.chdir(self._path)
        if self._program_file:
            os.close(os.open(_PROGRAM_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # If the kernel provides no inotify watch, every run gets a fresh mount.
        self._watched = kernel.watch_once(wire.WATCH_FD, ".", _CHANGES)

    def clear(self) -> None:
        """Reset the directory for the next run. Raises StepRefused if the supervisor fails, OSError."""
        if not self._watched or kernel.read_now(wire.WATCH_FD, _EVENTS, len(_EVENTS)) > 0:
            # An open working directory would keep the old mount alive, and the new one would get another
            # device number, which the next run could read.
            os.chdir("/")
            ask_supervisor(_RENEW)
            self._enter()
            return
        os.chmod(self._path, 0o700)
        os.utime(self._path)
        if self._program_file:
            os.chmod(_PROGRAM_FILE, 0o644)
            os.truncate(_PROGRAM_FILE, 0)
            os.utime(_PROGRAM_FILE)


def serve_requests(
    template_pid: int, requests: _socket.socket, renew: Callable[[], None], clean_up: Callable[[], None]
) -> NoReturn:
    """In the supervisor: serve the template process until it ends, then clean up and exit."""
    # An empty read means that the template process closed its end: it has exited.
    while request := requests.recv(wire.MAX_PACKET):
        try:
            if request == _RENEW:
                renew()
            elif request == HIDE:
                workspaces.hide()
            else:
                workspaces.mount(request.removeprefix(MOUNT))
            answer = _DONE
        except kernel.StepRefused as error:
            answer = str(error).encode()[:_MAX_TEXT]
        requests.send(answer)
    os.waitpid(template_pid, 0)
    clean_up()
    os._exit(0)


def ask_supervisor(request: bytes, supervisor_fd: int = wire.SUPERVISOR_FD) -> None:
    """In the template process: request a mount, for example a new, empty file system on /tmp.

    Raises StepRefused, OSError.
    """
    os.write(supervisor_fd, request)
    answer = os.read(supervisor_fd, _MAX_TEXT)
    if answer != _DONE:
        raise kernel.StepRefused(answer.decode(errors="replace") or "the supervisor that mounts has exited")


def empty_directory(path: str) -> None:
    """Remove everything in ``path``, whatever its names, modes and depth, but not ``path`` itself.

    A hostile program has filled it. No link is followed out of it.
    Nested directories are moved to the top instead of visited. A chain of a hundred thousand directories thus
    needs no recursion and no further descriptors.
    """
    top = os.open(path, _DIRECTORY)
    try:
        empty_open_directory(top)
    finally:
        os.close(top)


def empty_open_directory(top: int) -> None:
    """Do the same as ``empty_directory``, for a directory that is open."""
    os.fchmod(top, 0o700)
    moved = 0
    while names := os.listdir(top):
        for name in names:
            moved = _remove(top, name, moved)


def remove_directory(path: str) -> None:
    """Remove a directory with everything in it, as far as that is possible."""
    with contextlib.suppress(OSError):
        empty_directory(path)
        os.rmdir(path)


def _remove(top: int, name: str, moved: int) -> int:
    """Remove one entry of ``top``, and move its directories to ``top`` first. Returns the number of moves so
    far."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return moved
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for child in os.listdir(inner):
            if stat.S_ISDIR(os.lstat(child, dir_fd=inner).st_mode):
                moved += 1
                os.chmod(child, 0o700, dir_fd=inner)  # a directory must be writable to be moved
                os.rename(child, _free_name(top, moved), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return moved


def _free_name(top: int, number: int) -> str:
    name = f".moved-{number}"
    while True:
        try:
            os.lstat(name, dir_fd=top)
        except FileNotFoundError:
            return name
        name += "-"
