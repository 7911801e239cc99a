"""The tree of one workspace from outside: its changes against the base, and single paths.

In the way ``overlay`` the tree is an upper layer over the base, in overlayfs's own format. In the way
``copy`` it is a whole copy of the base. No process may run in the workspace meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

from whetstone.sandbox.workspace import tree
from whetstone.sandbox.workspace.changes import Change, Entry, PathChange, RefusedPath, WorkspaceDiff
from whetstone.sandbox.workspace.tree import WorkspaceError

_COMPARED_BYTES = 1 << 20
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


Found = tuple[PathChange, int] | RefusedPath
"""A change without its data and the open folder that has its last name, or a path that no diff contains."""


class Layer:
    """The tree of one workspace."""

    def __init__(self, top: str, base: str, *, overlay: bool) -> None:
        """``top`` is the folder of the layer or the copy, ``base`` the one of the base."""
        self.top, self.base, self.overlay = top, base, overlay

    def changes(self) -> Iterator[Found]:
        """Yield what differs from the base, in the order of a diff.

        Raises WorkspaceError for a tree that is too deep.
        """
        with tree.folder(self.top) as top, tree.folder(self.base) as base:
            yield from self._compare(top, base, "", not self.overlay, 0)

    def _compare(self, top: int, base: int | None, prefix: str, whole: bool, depth: int) -> Iterator[Found]:
        """Compare two folders. ``whole``: what the first does not have is deleted, not unchanged."""
        if depth > tree.MOST_DEPTH:
            raise WorkspaceError(f"more than {tree.MOST_DEPTH} folders inside each other: {prefix[:200]!r}")
        found = set(os.listdir(top))
        if whole and base is not None:
            found.update(os.listdir(base))
        for name in sorted(found, key=os.fsencode):
            path = prefix + name
            new, old = tree.status(name, top), tree.status(name, base)
            if new is not None and self.overlay and tree.is_whiteout(new):
                new = None
            if new is None:
                if old is not None and base is not None:
                    yield from _deleted(base, name, old, path)
                continue
            old_folder = old is not None and stat.S_ISDIR(old.st_mode)
            if (entry := _entry_of(new)) is None or not _is_text(name):
                kind = _SPECIAL.get(stat.S_IFMT(new.st_mode), "a device")
                yield RefusedPath(_shown(path), "its name is not UTF-8" if entry else f"it is {kind}")
                if old_folder and base is not None:
                    yield from _deleted_within(base, name, path)
                continue
            if entry is Entry.FOLDER:
                if not old_folder:
                    yield PathChange(path, Change.CHANGED if old else Change.ADDED, entry), top
                inner_base = tree.folder(name, base) if old_folder else nullcontext(None)
                with tree.folder(name, top) as inner, inner_base as below:
                    inner_whole = whole or tree.is_opaque(inner)
                    yield from self._compare(inner, below, path + "/", inner_whole, depth + 1)
                continue
            yield from _changed(top, name, new, base, old, path)
            if old_folder and base is not None:
                yield from _deleted_within(base, name, path)

    def diff(self, most_bytes: int, most_entries: int) -> WorkspaceDiff:
        """Return what differs from the base. Raises WorkspaceError beyond these limits."""
        changes: list[PathChange] = []
        refused: list[RefusedPath] = []
        total = 0
        for found in self.changes():
            if len(changes) + len(refused) >= most_entries:
                raise WorkspaceError(
                    f"more than {most_entries} paths differ from the base; remove files that were built, or "
                    "raise the limit diff_entries"
                )
            if isinstance(found, RefusedPath):
                refused.append(found)
                continue
            change = _with_data(*found, most_bytes - total + 1)
            total += len(change.data) + len(os.fsencode(change.path)) + len(os.fsencode(change.target))
            if total > most_bytes:
                raise WorkspaceError(
                    f"the changes have more than {most_bytes} bytes, at {change.path[:200]!r}; remove files "
                    "that were built, or raise the limit diff_bytes"
                )
            changes.append(change)
        return WorkspaceDiff(tuple(changes), tuple(refused))

    def read(self, path: str, most_bytes: int, start: int) -> bytes:
        """Return bytes of a regular file. Raises WorkspaceError."""
        *folders, name = parts_of(path)
        with self._folder(folders, path, make=False) as (top, base):
            parent, found = self._look_up(top, base, name)
            if found is None or parent is None:
                raise WorkspaceError(f"there is no {path!r} in the workspace")
            if not stat.S_ISREG(found.st_mode):
                raise WorkspaceError(f"{path!r} is no regular file but {_described(parent, name, found)}")
            with tree.readable_file(name, parent) as fd:
                return _read_at(fd, start, most_bytes)

    def put(self, change: PathChange, data: bytes | int) -> None:
        """Make a path the file, folder or link of a change, in place of what is there, and missing folders.

        ``data`` are the bytes of a file, or an open file. A folder that is there stays as it is. Raises
        WorkspaceError if a parent is no folder.
        """
        *folders, name = parts_of(change.path)
        with self._folder(folders, change.path, make=True) as (top, base):
            assert top is not None
            if change.entry is Entry.FOLDER:
                _, found = self._look_up(top, base, name)
                if found is None or not stat.S_ISDIR(found.st_mode):
                    self._make_folder(top, base, name)
                return
            tree.remove(name, top)
            if change.entry is Entry.LINK:
                os.symlink(change.target, name, dir_fd=top)
            else:
                tree.write_file(name, top, data, 0o755 if change.executable else 0o644)
            tree.give(name, top)

    def make(self, changes: Iterable[Found]) -> None:
        """Make changes that were found in another tree. Raises WorkspaceError for a refused one."""
        replaced = "/"
        for found in changes:
            if isinstance(found, RefusedPath):
                raise WorkspaceError(f"{found.path!r} cannot be kept: {found.reason}")
            change, parent = found
            name = change.path.rpartition("/")[2]
            if change.change is Change.DELETED:
                if not change.path.startswith(replaced):  # else it went with the folder
                    self.delete(change.path)
                continue
            replaced = change.path + "/"
            is_file = change.entry is Entry.FILE
            with tree.readable_file(name, parent) if is_file else nullcontext(b"") as data:
                self.put(change, data)

    def delete(self, path: str) -> None:
        """Remove a path with everything in it. Nothing happens if there is none."""
        *folders, name = parts_of(path)
        with self._folder(folders, path, make=False) as (top, base):
            if self._look_up(top, base, name)[1] is None:
                return
        with self._folder(folders, path, make=True) as (top, base):
            assert top is not None
            tree.remove(name, top)
            if self.overlay and tree.status(name, base) is not None:
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=top)

    def _look_up(
        self, top: int | None, base: int | None, name: str
    ) -> tuple[int | None, os.stat_result | None]:
        """Return the folder that has the visible entry of this name, and its status."""
        found = tree.status(name, top)
        if found is not None:
            return top, None if self.overlay and tree.is_whiteout(found) else found
        return base, tree.status(name, base)

    @contextlib.contextmanager
    def _folder(
        self, folders: list[str], path: str, *, make: bool
    ) -> Generator[tuple[int | None, int | None]]:
        """Open a folder of the workspace in the layer and in what is visible below it, each if it exists.

        ``make``: make the folder in the layer. Raises WorkspaceError if a part of the path is no folder.
        """
        with contextlib.ExitStack() as stack:
            top: int | None = stack.enter_context(tree.folder(self.top))
            base = stack.enter_context(tree.folder(self.base)) if self.overlay else None
            for name in folders:
                parent, found = self._look_up(top, base, name)
                if parent is not None and found is not None and not stat.S_ISDIR(found.st_mode):
                    raise WorkspaceError(f"{path!r}: {name!r} is {_described(parent, name, found)}")
                if found is None and not make:
                    top = base = None
                    break
                if make and (found is None or parent != top):
                    assert top is not None
                    self._make_folder(top, base, name)
                in_top, below = tree.status(name, top), tree.status(name, base)
                next_top = stack.enter_context(tree.folder(name, top)) if in_top else None
                hidden = below is None or not stat.S_ISDIR(below.st_mode)
                if hidden or (next_top is not None and tree.is_opaque(next_top)):
                    base = None
                else:
                    base = stack.enter_context(tree.folder(name, base))
                top = next_top
            if make and top is not None:
                os.fchmod(top, stat.S_IMODE(os.fstat(top).st_mode) | 0o700)
            yield top, base

    def _make_folder(self, top: int, base: int | None, name: str) -> None:
        """Make a folder in a folder of the layer: the copy of a visible one below, or an empty one."""
        parent, found = self._look_up(top, base, name)
        copied = parent != top and found is not None and stat.S_ISDIR(found.st_mode)
        tree.remove(name, top)
        os.fchmod(top, stat.S_IMODE(os.fstat(top).st_mode) | 0o700)
        os.mkdir(name, 0o755, dir_fd=top)
        if not copied and tree.status(name, base) is not None:
            with tree.folder(name, top) as made:
                tree.make_opaque(made)
        tree.give(name, top)


def parts_of(path: str) -> list[str]:
    """Return the names in a path. Raises WorkspaceError unless it is a path inside the workspace."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise WorkspaceError(f"{path!r} is no path inside the workspace; give a relative one without `..`")
    if len(parts) > tree.MOST_DEPTH:
        raise WorkspaceError(f"a path has at most {tree.MOST_DEPTH} parts")
    return parts


def _entry_of(found: os.stat_result) -> Entry | None:
    if stat.S_ISREG(found.st_mode):
        return Entry.FILE
    if stat.S_ISDIR(found.st_mode):
        return Entry.FOLDER
    return Entry.LINK if stat.S_ISLNK(found.st_mode) else None


def _described(parent: int, name: str, found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"a link to {os.readlink(name, dir_fd=parent)!r}"
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    return "a file" if stat.S_ISREG(found.st_mode) else _SPECIAL.get(stat.S_IFMT(found.st_mode), "a device")


def _changed(
    top: int, name: str, new: os.stat_result, base: int | None, old: os.stat_result | None, path: str
) -> Iterator[Found]:
    """Yield the change of a file or link, if it differs."""
    change = Change.ADDED if old is None else Change.CHANGED
    same_kind = old is not None and stat.S_IFMT(old.st_mode) == stat.S_IFMT(new.st_mode)
    if stat.S_ISLNK(new.st_mode):
        target = os.readlink(name, dir_fd=top)
        if same_kind and os.readlink(name, dir_fd=base) == target:
            return
        if _is_text(target):
            yield PathChange(path, change, Entry.LINK, target=target), top
        else:
            yield RefusedPath(path, "the target of the link is not UTF-8")
        return
    executable = bool(new.st_mode & 0o100)
    same_mode = old is not None and bool(old.st_mode & 0o100) == executable
    if same_kind and same_mode and base is not None and _same_bytes(top, base, name):
        return
    yield PathChange(path, change, Entry.FILE, executable=executable), top


def _same_bytes(top: int, base: int, name: str) -> bool:
    with tree.readable_file(name, top) as new, tree.readable_file(name, base) as old:
        if os.fstat(new).st_size != os.fstat(old).st_size:
            return False
        while block := os.read(new, _COMPARED_BYTES):
            if block != os.read(old, len(block)):
                return False
        return True


def _deleted(base: int, name: str, old: os.stat_result, path: str) -> Iterator[Found]:
    entry = _entry_of(old)
    assert entry is not None
    if _is_text(name):
        yield PathChange(path, Change.DELETED, entry), base
    else:
        yield RefusedPath(_shown(path), "its name is not UTF-8")
    if entry is Entry.FOLDER:
        yield from _deleted_within(base, name, path)


def _deleted_within(base: int, name: str, path: str) -> Iterator[Found]:
    with tree.folder(name, base) as inner:
        for child in tree.names(inner):
            found = os.lstat(child, dir_fd=inner)
            yield from _deleted(inner, child, found, f"{path}/{child}")


def _with_data(change: PathChange, parent: int, most_bytes: int) -> PathChange:
    """Return a change with the first bytes of its file."""
    if change.change is Change.DELETED or change.entry is not Entry.FILE:
        return change
    with tree.readable_file(change.path.rpartition("/")[2], parent) as fd:
        return replace(change, data=_read_at(fd, 0, most_bytes))


def _read_at(fd: int, start: int, most: int) -> bytes:
    return b"".join(_pieces(fd, start, min(most, os.fstat(fd).st_size - start)))


def _pieces(fd: int, start: int, most: int) -> Iterator[bytes]:
    while most > 0 and (piece := os.pread(fd, most, start)):
        yield piece
        start, most = start + len(piece), most - len(piece)


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
