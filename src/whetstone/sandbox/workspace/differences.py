"""What differs between the tree of a workspace and its base, found from outside.

In the way ``overlay`` the tree is an upper layer over the base, in overlayfs's own format. In the way
``copy`` it is a whole copy of the base. No process may run in the workspace meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext

from whetstone.sandbox.workspace import tree
from whetstone.sandbox.workspace.changes import (
    Change,
    PathChange,
    RefusedPath,
    TreeEntry,
    WorkspaceDiff,
    WorkspaceLimits,
)
from whetstone.sandbox.workspace.tree import WorkspaceError

_COMPARED_BYTES = 1 << 20
_ENTRIES = {stat.S_IFREG: TreeEntry.FILE, stat.S_IFDIR: TreeEntry.FOLDER, stat.S_IFLNK: TreeEntry.LINK}
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def find_differences(top: str, base: str, limits: WorkspaceLimits, *, overlay: bool) -> WorkspaceDiff:
    """Return what differs between the folder of a layer or a copy and that of its base.

    Raises WorkspaceError beyond the limits of a diff, and for a tree that is too deep.
    """
    found = _Differences(limits, overlay=overlay)
    with tree.folder(top) as top_fd, tree.folder(base) as base_fd:
        found.compare(top_fd, base_fd, "", not overlay, 0)
    return WorkspaceDiff(tuple(found.changes), tuple(found.refused))


class _Differences:
    """Collects differences in the order of a diff."""

    def __init__(self, limits: WorkspaceLimits, *, overlay: bool) -> None:
        self._overlay = overlay
        self._limits = limits
        self._bytes = 0
        self.changes: list[PathChange] = []
        self.refused: list[RefusedPath] = []

    def compare(self, top: int, base: int | None, prefix: str, whole: bool, depth: int) -> None:
        """Compare two folders. ``whole``: what the first does not have is deleted, not unchanged."""
        if depth > tree.MOST_DEPTH:
            raise WorkspaceError(f"more than {tree.MOST_DEPTH} folders inside each other: {prefix[:200]!r}")
        found = set(os.listdir(top))
        if whole and base is not None:
            found.update(os.listdir(base))
        for name in sorted(found, key=os.fsencode):
            path = prefix + name
            new, old = tree.status(name, top), tree.status(name, base)
            old_folder = old is not None and stat.S_ISDIR(old.st_mode)
            if new is None or (self._overlay and tree.is_whiteout(new)):
                if old is not None and base is not None:
                    self._delete(base, name, old, path)
            elif stat.S_ISDIR(new.st_mode) and _is_text(name):
                if not old_folder:
                    self._add(PathChange(path, _change_from(old), TreeEntry.FOLDER))
                inner_base = tree.folder(name, base) if old_folder else nullcontext(None)
                with tree.folder(name, top) as inner, inner_base as below:
                    self.compare(inner, below, path + "/", whole or tree.is_opaque(inner), depth + 1)
            else:
                self._compare_entry(top, name, new, base, old, path)
                if old_folder and base is not None:
                    self._delete_within(base, name, path)

    def _compare_entry(
        self,
        top: int,
        name: str,
        new: os.stat_result,
        base: int | None,
        old: os.stat_result | None,
        path: str,
    ) -> None:
        """Add the change of anything but a folder, if it differs."""
        kind = stat.S_IFMT(new.st_mode)
        same_kind = old is not None and stat.S_IFMT(old.st_mode) == kind
        executable = bool(new.st_mode & 0o100)
        if kind not in _ENTRIES:
            self._refuse(path, f"it is {_SPECIAL.get(kind, 'a device')}")
        elif not _is_text(name):
            self._refuse(path, "its name is not UTF-8")
        elif _ENTRIES[kind] is TreeEntry.LINK:
            target = os.readlink(name, dir_fd=top)
            if not _is_text(target):
                self._refuse(path, "the target of the link is not UTF-8")
            elif not (same_kind and os.readlink(name, dir_fd=base) == target):
                self._add(PathChange(path, _change_from(old), TreeEntry.LINK, target=target))
        elif (
            old is None
            or base is None
            or not (same_kind and bool(old.st_mode & 0o100) == executable and _same_bytes(top, base, name))
        ):
            most = self._limits.diff_bytes - self._bytes + 1
            with tree.readable_file(name, top) as fd, open(fd, "rb", closefd=False) as file:
                data = file.read(most)
            self._add(PathChange(path, _change_from(old), TreeEntry.FILE, data, executable))

    def _delete(self, base: int, name: str, old: os.stat_result, path: str) -> None:
        entry = _ENTRIES[stat.S_IFMT(old.st_mode)]
        if _is_text(name):
            self._add(PathChange(path, Change.DELETED, entry))
        else:
            self._refuse(path, "its name is not UTF-8")
        if entry is TreeEntry.FOLDER:
            self._delete_within(base, name, path)

    def _delete_within(self, base: int, name: str, path: str) -> None:
        with tree.folder(name, base) as inner:
            for child in tree.names(inner):
                self._delete(inner, child, os.lstat(child, dir_fd=inner), f"{path}/{child}")

    def _add(self, change: PathChange) -> None:
        self._count_path()
        self._bytes += len(change.data) + len(os.fsencode(change.path)) + len(os.fsencode(change.target))
        if self._bytes > self._limits.diff_bytes:
            raise WorkspaceError(
                f"the changes have more than {self._limits.diff_bytes} bytes, at {change.path[:200]!r}; "
                "remove files that were built, or raise the limit diff_bytes"
            )
        self.changes.append(change)

    def _refuse(self, path: str, reason: str) -> None:
        self._count_path()
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.refused.append(RefusedPath(shown, reason))

    def _count_path(self) -> None:
        if len(self.changes) + len(self.refused) >= self._limits.diff_entries:
            raise WorkspaceError(
                f"more than {self._limits.diff_entries} paths differ from the base; remove files that were "
                "built, or raise the limit diff_entries"
            )


def _change_from(old: os.stat_result | None) -> Change:
    return Change.ADDED if old is None else Change.CHANGED


def _same_bytes(top: int, base: int, name: str) -> bool:
    with tree.readable_file(name, top) as new, tree.readable_file(name, base) as old:
        if os.fstat(new).st_size != os.fstat(old).st_size:
            return False
        while block := os.read(new, _COMPARED_BYTES):
            if block != os.read(old, len(block)):
                return False
        return True


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)
