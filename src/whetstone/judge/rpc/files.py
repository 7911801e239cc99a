"""A private directory of each process on the link, with the same files in both.

Each process sends the changes of its regular files and directories since the last exchange, as names and
bytes. So the directories may be in sandboxes that share nothing. The receiver checks each change: names stay
inside its directory, links are not followed, and only plain files and directories exist for it.

A file of the test is sent only if a request of the test or the problem's text names it, or a directory above
it. Files with values to compare are not sent. No file of the program replaces a file that
was not sent.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from operator import is_
from time import time_ns
from typing import Any, cast

from whetstone.judge.values import WireError

MAX_FILES = 256
MAX_FILE_BYTES = 4 << 20
MAX_BYTES = 16 << 20
_MAX_RECEIVED = 256 << 20
_MAX_NAME = 1000
_MAX_NAMES = 100_000
_MAX_LEVELS = 16
# Suffixes of the temporary files of a database. They must not be copied to another process.
_DATABASE_SUFFIXES = ("-journal", "-wal", "-shm")
_RACY_NS = 100_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DATABASE = b"SQLite format 3\0"
_MAKES_TABLE = re.compile(r"CREATE\s+(TABLE|(UNIQUE\s+)?INDEX)\s", re.I)


class SharedFiles:
    """The directory of one process, and the files that the other process knows."""

    def __init__(self, root: str, own: Iterable[str], named: Iterable[str] | None) -> None:
        """``own``: names of files at the top level that are never shared.

        ``named``: the paths that may be sent (in the test process), or None for all (in the program's
        process).
        """
        self.root = root
        self._own = frozenset(own)
        self._named = None if named is None else set(map(os.path.normpath, named))
        self._shared: dict[str, bytes | None] = {}
        """The content of files that both have, None for directories, by relative path."""
        self._stat_marks: dict[str, tuple[tuple[int, ...], int]] = {}
        self._received = 0

    def add_named_paths(self, value: object) -> None:
        """Allow the paths in ``value``, which the program receives, to be sent."""
        pending = [value]
        while pending and self._named is not None and len(self._named) < _MAX_NAMES:
            item = pending.pop()
            if isinstance(item, os.PathLike):
                item = os.fspath(cast("os.PathLike[str]", item))
            if type(item) is str:
                self._add_path(item, self._named)
            elif isinstance(item, (list, tuple, set)):
                pending += list(cast("list[Any]", item))[:MAX_FILES]
            elif isinstance(item, dict):
                pending += list(cast("dict[Any, Any]", item).values())[:MAX_FILES]

    def _add_path(self, text: str, named: set[str]) -> None:
        if text and len(text) <= _MAX_NAME:
            path = os.path.normpath(os.path.join(self.root, text))
            if os.path.commonpath([self.root, path]) == self.root:
                named.add(os.path.relpath(path, self.root))

    def changes(self) -> list[Any]:
        """Return the changes since the last exchange: ``[[path, content], …]`` and ``[removed path, …]``.

        The content of a directory is None.
        """
        changed: list[list[Any]] = []
        total = 0
        found = self._list_paths()
        for path, is_directory in found.items():
            before = self._shared.get(path, b"") if path in self._shared else _ABSENT
            now = None if is_directory else self._content(path)
            if now is not None:
                total += len(now)
                if total > MAX_BYTES:
                    break
            if is_directory or now is not None:
                if now != before:
                    changed.append([path, now])
                self._shared[path] = now
        removed = [path for path in self._shared if path not in found]
        for path in removed:
            self._shared.pop(path)
            self._stat_marks.pop(path, None)
        return [changed, removed]

    def apply(self, changes: object) -> None:
        """Apply the changes of the other process. Raises WireError if they are malformed."""
        match changes:
            case [list() as changed, list() as removed]:
                pass
            case _:
                raise WireError("malformed files")
        for path in sorted(map(_check_path, cast("list[Any]", removed)), reverse=True):
            if path in self._shared:
                self._remove(path)
        for entry in cast("list[Any]", changed):
            match entry:
                case [path, (bytes() | None) as content]:
                    self._received += len(content or b"")
                    if self._received > _MAX_RECEIVED:
                        raise WireError("files with more bytes than can be shared")
                    self._store(_check_path(path), content)
                case _:
                    raise WireError("malformed files")

    def _list_paths(self) -> dict[str, bool]:
        """Return the existing paths that may be sent, and whether they are directories; parents come
        first."""
        found: dict[str, bool] = {}
        pending = [""]
        while pending and len(found) < MAX_FILES:
            parent = pending.pop()
            try:
                entries = sorted(os.scandir(os.path.join(self.root, parent)), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries[: MAX_FILES - len(found)]:
                path = os.path.join(parent, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if not (is_directory or entry.is_file(follow_symlinks=False)) or not self._is_shareable(path):
                    continue
                if is_directory:
                    pending.append(path)
                if path in self._shared or self._is_named(path):
                    found[path] = is_directory
        return found

    def _is_shareable(self, path: str) -> bool:
        name = os.path.basename(path)
        hidden = name[0] == "." or name == "__pycache__" or name.endswith(_DATABASE_SUFFIXES)
        return not hidden and path not in self._own

    def _is_named(self, path: str) -> bool:
        if self._named is None or "." in self._named:
            return True
        while path:
            if path in self._named:
                return True
            path = os.path.dirname(path)
        return False

    def _content(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is too large or does not exist."""
        try:
            fd = os.open(os.path.join(self.root, path), _READ)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                return None
            signature = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known, read_at = self._stat_marks.get(path, ((), 0))
            before = self._shared.get(path)
            # Two changes within one clock tick leave the same timestamps.
            if before is not None and signature == known and read_at - status.st_ctime_ns > _RACY_NS:
                return before
            self._stat_marks[path] = signature, time_ns()
            return file.read(MAX_FILE_BYTES + 1)

    def _store(self, path: str, content: bytes | None) -> None:
        full = os.path.join(self.root, path)
        if not self._is_shareable(path) or not self._has_plain_parents(path):
            return
        if self._named is not None:
            # The file belongs to the test, and was not shared.
            if path not in self._shared and os.path.lexists(full):
                return
            if content is not None and content.startswith(_DATABASE):
                check_database(content)
        with suppress(OSError):
            if content is None:
                os.makedirs(full, exist_ok=True)
            else:
                self._write(full, content)
            self._shared[path] = content

    def _has_plain_parents(self, path: str) -> bool:
        """Return whether all parents of ``path`` that exist are directories and no links."""
        parent = os.path.dirname(path)
        while parent:
            full = os.path.join(self.root, parent)
            if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
                return False
            parent = os.path.dirname(parent)
        return True

    def _write(self, full: str, content: bytes) -> None:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        fd = os.open(full, _WRITE, 0o644)
        with os.fdopen(fd, "r+b") as file:
            # The file is overwritten, not replaced: a database that has it open must see the change.
            if stat.S_ISREG(os.fstat(fd).st_mode):
                file.write(content)
                file.truncate()

    def _remove(self, path: str) -> None:
        full = os.path.join(self.root, path)
        with suppress(OSError):
            if self._shared.pop(path) is None:
                os.rmdir(full)
            elif self._has_plain_parents(path):
                os.unlink(full)


_ABSENT = object()


def _check_path(path: object) -> str:
    """Return a normalised path inside the directory. Raises WireError for any other."""
    if type(path) is not str or not path or len(path) > _MAX_NAME or "\0" in path or path[0] == "/":
        raise WireError("a malformed name of a file")
    parts = path.split("/")
    if len(parts) > _MAX_LEVELS or any(part in {"", ".", ".."} for part in parts):
        raise WireError("a malformed name of a file")
    return path


def replace_root(value: Any, root: str, other: str) -> Any:
    """Return ``value`` with each path inside ``root`` replaced by the same path inside ``other``."""
    try:
        return _replace_root(value, root, other)
    # A value that contains itself cannot be sent anyway.
    except RecursionError:
        return value


def _replace_root(value: Any, root: str, other: str) -> Any:
    if type(value) is str:
        inside = value == root or value.startswith(f"{root}/")
        return other + value[len(root) :] if inside else value
    if type(value) in (list, tuple):
        parts = [_replace_root(part, root, other) for part in value]
        return value if all(map(is_, parts, value)) else type(value)(parts)
    if type(value) is dict:
        parts = [_replace_root(part, root, other) for part in value.values()]
        return value if all(map(is_, parts, value.values())) else dict(zip(value, parts, strict=True))
    return value


def check_database(content: bytes) -> None:
    """Raise WireError for a database that could compute its rows when it is read.

    The test must read only data from it: tables and consistent indexes. Views, triggers, virtual tables and
    computed columns are refused, because they see the test's queries.
    """
    import sqlite3  # only where a database arrives

    connection = sqlite3.connect(":memory:")
    try:
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "ignore_check_constraints = ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.deserialize(content[:18] + b"\1\1" + content[20:])  # sets its mode to "no write-ahead log"
        statements = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        tables = connection.execute("PRAGMA table_list").fetchall()
        computed = [
            column
            for table in tables
            for column in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table[1],))
            if column[-1] != 0
        ]
        if (
            computed
            or any(table[2] != "table" for table in tables)
            or not all(_MAKES_TABLE.match(statement) for (statement,) in statements)
        ):
            raise WireError("a database that contains more than tables")
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise WireError("an inconsistent database")
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise WireError(f"a malformed database: {error}") from None
    finally:
        connection.close()
