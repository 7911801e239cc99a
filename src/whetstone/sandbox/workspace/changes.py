"""What differs between a workspace and its base, as data that can be kept and applied elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Change(StrEnum):
    """What happened to a path."""

    ADDED = "added"
    CHANGED = "changed"
    DELETED = "deleted"


class TreeEntry(StrEnum):
    """What a path is, after the change; before it if it was deleted."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True)
class PathChange:
    """One path that differs from the base.

    ``path`` is relative, with ``/`` between its parts. ``data`` are the bytes of a file, and ``executable``
    says whether its owner may execute it. ``target`` is where a symbolic link leads; nothing follows it.
    Other modes, owners and times are not kept.
    """

    path: str
    change: Change
    entry: TreeEntry
    data: bytes = b""
    executable: bool = False
    target: str = ""


@dataclass(frozen=True)
class RefusedPath:
    """A path that cannot be in a diff: what it is, with no bytes of it."""

    path: str
    reason: str


@dataclass(frozen=True)
class WorkspaceDiff:
    """All paths that differ from the base, folders before what is in them, and otherwise in byte order.

    A deleted folder is followed by everything that was in it. ``refused`` are new paths that no diff can
    contain: pipes, sockets, devices, and names that are not UTF-8. ``apply`` leaves them out.
    """

    changes: tuple[PathChange, ...] = ()
    refused: tuple[RefusedPath, ...] = ()


@dataclass(frozen=True)
class WorkspaceLimits:
    """Limits of a workspace over its whole life.

    ``disk_bytes`` and ``disk_entries`` bound what it takes beyond its base: a command that exceeds them is
    ended with OUTPUT_LIMIT. ``diff_bytes`` and ``diff_entries`` bound a diff: a larger one is refused.
    """

    disk_bytes: int = 512 << 20
    disk_entries: int = 50_000
    diff_bytes: int = 16 << 20
    diff_entries: int = 5_000

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that is not positive."""
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"the limit {name} of a workspace is {value}; give a positive number")
