"""Empty a directory that a hostile program has filled, without following links out of it."""

from __future__ import annotations

import contextlib
import os
import stat

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def empty_directory(path: str) -> None:
    """Remove everything in ``path``, whatever its names, modes and depth, but not ``path`` itself.

    Nested directories are moved to the top instead of visited. A chain of a hundred thousand directories thus
    needs no recursion and no further descriptors.
    """
    top = os.open(path, _DIRECTORY)
    try:
        os.fchmod(top, 0o700)
        moved = 0
        while names := os.listdir(top):
            for name in names:
                moved = _remove(top, name, moved)
    finally:
        os.close(top)


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
