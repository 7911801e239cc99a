"""Locks the folder of a run, so that only one process writes to it. Does not import torch."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from whetstone.core.errors import UserError


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock the folder for this process, so that a second run in it is refused.

    The kernel releases the lock when the process ends, even by SIGKILL. Raises UserError.
    """
    # A run that wrote nothing must leave no folders, so those that it creates are remembered.
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; name a folder for the run with out=FOLDER") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise _in_use(folder) from None
    try:
        yield
    finally:
        if [file.name for file in folder.iterdir()] == [".lock"]:  # the run wrote nothing
            (folder / ".lock").unlink()
            with suppress(OSError):  # another run may have started in one of these folders
                for path in created:
                    path.rmdir()
        os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise UserError if a process of this machine trains in the folder."""
    if is_locked(folder):
        raise _in_use(folder)


def _in_use(folder: Path) -> UserError:
    return UserError(
        f"{folder}: another process trains in this folder; wait for it, or name another with out=FOLDER"
    )


def is_locked(folder: Path) -> bool:
    """Return whether a process of this machine trains in the folder. The check does not touch the lock."""
    # Taking the lock could make a run fail that starts at this moment. /proc/locks lists all locks.
    try:
        number = (folder / ".lock").stat().st_ino
        held = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    locks = (line.split() for line in held.splitlines())
    return any("FLOCK" in fields and any(f.endswith(f":{number}") for f in fields) for fields in locks)
