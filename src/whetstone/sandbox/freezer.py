"""A control group of version 2 that freezes the processes of a run. Nothing that they do can undo it.

The run's first process enters before its program starts, and its children are born there. The fork-server
stays outside, so that it can end frozen processes. It needs no controller, so a machine with the hierarchies
of version 1 may offer it too. The freezer of version 1 is not used: its processes cannot be killed.
"""

from __future__ import annotations

import os

from whetstone.sandbox.cgroup import FREEZER, ControlGroup, find_places, make_directory, remove_directory
from whetstone.sandbox.job import SandboxFault


class Freezer:
    """One directory. Methods raise SandboxFault if the kernel refuses."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def admit(self, pid: int) -> None:
        """Move a process into the group, which is not frozen."""
        self._write("cgroup.freeze", "0")
        self._write("cgroup.procs", str(pid))

    def freeze(self) -> None:
        """Freeze all processes. One that computes stops when the kernel next interrupts it."""
        self._write("cgroup.freeze", "1")

    def thaw(self) -> None:
        """Let all processes continue."""
        self._write("cgroup.freeze", "0")

    def _write(self, name: str, text: str) -> None:
        path = os.path.join(self._directory, name)
        try:
            with open(path, "w") as file:
                file.write(text)
        except OSError as error:
            raise SandboxFault(f"control group: {path}: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the group. Its processes must have ended; the kernel may need a moment."""
        remove_directory(self._directory)


def make_freezer(group: ControlGroup | None) -> Freezer | None:
    """Make a freezer, inside the fork-server's group if that is of version 2. None if the kernel refuses."""
    inside = group.unified_directory if group is not None else None
    if inside is not None:
        directory = os.path.join(inside, FREEZER)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            return None
        return _usable(directory)
    for place in find_places():
        if place.version == 2 and (made := make_directory(place.directory)) is not None:
            return _usable(made)
    return None


def _usable(directory: str) -> Freezer | None:
    if os.access(os.path.join(directory, "cgroup.freeze"), os.W_OK):
        return Freezer(directory)
    remove_directory(directory)
    return None
