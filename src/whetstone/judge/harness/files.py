"""A private directory on either side of the link, with the same files in both.

Each side tells the other what became of its regular files and directories since they last agreed, as names
and bytes. So both may lie in sandboxes that share nothing. What a side is told it checks: names stay beneath
its directory, nothing is followed out of it, what is not a plain file or directory is not there.

In the testing process a file of the test's goes over only if the test named it to the program (or a directory
above it), or the problem's text does: what it wrote to compare with stays where it is. And no file of the
program's takes the place of one that did not go over.
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
_PASSING = ("-journal", "-wal", "-shm")
"""What a database keeps beside its file while it writes: another process must not find it."""
_RACY_NS = 100_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DATABASE = b"SQLite format 3\0"
_MAKES_TABLE = re.compile(r"CREATE\s+(TABLE|(UNIQUE\s+)?INDEX)\s", re.I)


class SharedFiles:
    """One side's directory, and what the other side knows of it."""

    def __init__(self, root: str, own: Iterable[str], named: Iterable[str] | None) -> None:
        """Files at the top whose names are ``own`` are left alone.

        ``named`` are the paths that go over (in the testing process), or None for all (in the program's).
        """
        self.root = root
        self._own = frozenset(own)
        self._named = None if named is None else set(map(os.path.normpath, named))
        self._known: dict[str, bytes | None] = {}
        """Content of the files that both have, None for directories; by path beneath the directory."""
        self._seen: dict[str, tuple[tuple[int, ...], int]] = {}
        self._received = 0

    def name(self, value: object) -> None:
        """The program is given ``value``: what it names may go over."""
        waiting = [value]
        while waiting and self._named is not None and len(self._named) < _MAX_NAMES:
            item = waiting.pop()
            if isinstance(item, os.PathLike):
                item = os.fspath(cast("os.PathLike[str]", item))
            if type(item) is str:
                self._name(item, self._named)
            elif isinstance(item, (list, tuple, set)):
                waiting += list(cast("list[Any]", item))[:MAX_FILES]
            elif isinstance(item, dict):
                waiting += list(cast("dict[Any, Any]", item).values())[:MAX_FILES]

    def _name(self, text: str, named: set[str]) -> None:
        if text and len(text) <= _MAX_NAME:
            path = os.path.normpath(os.path.join(self.root, text))
            if os.path.commonpath([self.root, path]) == self.root:
                named.add(os.path.relpath(path, self.root))

    def changes(self) -> list[Any]:
        """``[[path, content or None for a directory], …], [path removed, …]`` since both last agreed."""
        changed: list[list[Any]] = []
        total = 0
        found = self._found()
        for path, is_directory in found.items():
            before = self._known.get(path, b"") if path in self._known else _ABSENT
            now = None if is_directory else self._content(path)
            if now is not None:
                total += len(now)
                if total > MAX_BYTES:
                    break
            if is_directory or now is not None:
                if now != before:
                    changed.append([path, now])
                self._known[path] = now
        removed = [path for path in self._known if path not in found]
        for path in removed:
            self._known.pop(path)
            self._seen.pop(path, None)
        return [changed, removed]

    def apply(self, changes: object) -> None:
        """Do what the other side did. Raises WireError on nonsense."""
        match changes:
            case [list() as changed, list() as removed]:
                pass
            case _:
                raise WireError("malformed files")
        for path in sorted(map(_checked, cast("list[Any]", removed)), reverse=True):
            if path in self._known:
                self._remove(path)
        for entry in cast("list[Any]", changed):
            match entry:
                case [path, (bytes() | None) as content]:
                    self._received += len(content or b"")
                    if self._received > _MAX_RECEIVED:
                        raise WireError("more bytes in files than can be shared")
                    self._put(_checked(path), content)
                case _:
                    raise WireError("malformed files")

    def _found(self) -> dict[str, bool]:
        """Paths of what is there and may go over, directories before what is in them; whether it is one."""
        found: dict[str, bool] = {}
        waiting = [""]
        while waiting and len(found) < MAX_FILES:
            above = waiting.pop()
            try:
                entries = sorted(os.scandir(os.path.join(self.root, above)), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries[: MAX_FILES - len(found)]:
                path = os.path.join(above, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if not (is_directory or entry.is_file(follow_symlinks=False)) or not self._may_be(path):
                    continue
                if is_directory:
                    waiting.append(path)
                if path in self._known or self._is_named(path):
                    found[path] = is_directory
        return found

    def _may_be(self, path: str) -> bool:
        name = os.path.basename(path)
        hidden = name[0] == "." or name == "__pycache__" or name.endswith(_PASSING)
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
        """What a file holds; None for one that is too large, or gone."""
        try:
            fd = os.open(os.path.join(self.root, path), _READ)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                return None
            marks = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known, looked_at = self._seen.get(path, ((), 0))
            before = self._known.get(path)
            # A file changed twice within a tick of the clock looks as it did.
            if before is not None and marks == known and looked_at - status.st_ctime_ns > _RACY_NS:
                return before
            self._seen[path] = marks, time_ns()
            return file.read(MAX_FILE_BYTES + 1)

    def _put(self, path: str, content: bytes | None) -> None:
        full = os.path.join(self.root, path)
        if not self._may_be(path) or not self._is_open(path):
            return
        if self._named is not None:
            if path not in self._known and os.path.lexists(full):
                return  # the test's own
            if content is not None and content.startswith(_DATABASE):
                check_database(content)
        with suppress(OSError):
            if content is None:
                os.makedirs(full, exist_ok=True)
            else:
                self._write(full, content)
            self._known[path] = content

    def _is_open(self, path: str) -> bool:
        """Whether all that is above ``path`` are directories, none of them a link."""
        above = os.path.dirname(path)
        while above:
            full = os.path.join(self.root, above)
            if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
                return False
            above = os.path.dirname(above)
        return True

    def _write(self, full: str, content: bytes) -> None:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        fd = os.open(full, _WRITE, 0o644)
        with os.fdopen(fd, "r+b") as file:
            # In place: who has it open, a database above all, sees it change.
            if stat.S_ISREG(os.fstat(fd).st_mode):
                file.write(content)
                file.truncate()

    def _remove(self, path: str) -> None:
        full = os.path.join(self.root, path)
        with suppress(OSError):
            if self._known.pop(path) is None:
                os.rmdir(full)
            elif self._is_open(path):
                os.unlink(full)


_ABSENT = object()


def _checked(path: object) -> str:
    """A path beneath the directory, in its plain spelling. Raises WireError for any other."""
    if type(path) is not str or not path or len(path) > _MAX_NAME or "\0" in path or path[0] == "/":
        raise WireError("a malformed name of a file")
    parts = path.split("/")
    if len(parts) > _MAX_LEVELS or any(part in {"", ".", ".."} for part in parts):
        raise WireError("a malformed name of a file")
    return path


def respelled(value: Any, root: str, other: str) -> Any:
    """``value``, with paths beneath ``other`` in the place of those beneath ``root``."""
    try:
        return _respelled(value, root, other)
    except RecursionError:  # what contains itself does not cross anyway
        return value


def _respelled(value: Any, root: str, other: str) -> Any:
    if type(value) is str:
        inside = value == root or value.startswith(f"{root}/")
        return other + value[len(root) :] if inside else value
    if type(value) in (list, tuple):
        parts = [_respelled(part, root, other) for part in value]
        return value if all(map(is_, parts, value)) else type(value)(parts)
    if type(value) is dict:
        parts = [_respelled(part, root, other) for part in value.values()]
        return value if all(map(is_, parts, value.values())) else dict(zip(value, parts, strict=True))
    return value


def check_database(content: bytes) -> None:
    """Refuse a database that could make up its rows when it is asked for them. Raises WireError.

    What the test reads from it must be data: tables and indexes that agree with each other, and no views,
    triggers, virtual tables or computed columns, which see what is asked.
    """
    import sqlite3  # only where a database arrives

    connection = sqlite3.connect(":memory:")
    try:
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "ignore_check_constraints = ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.deserialize(content[:18] + b"\1\1" + content[20:])  # as if no log beside it were in use
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
            raise WireError("a database that holds more than tables")
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise WireError("a database that contradicts itself")
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise WireError(f"a malformed database: {error}") from None
    finally:
        connection.close()
