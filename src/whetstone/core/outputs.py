"""Writes files and folders completely or not at all, and never overwrites data that is still needed.

A command calls :func:`check_outputs` before its work. It refuses an output that is also an input, and an
existing one unless it may be replaced. The command then writes through :func:`replacing`: to a temporary file
in the same folder, which is synced and renamed. If anything fails, the old file remains. Data that must
survive a kill goes to a :class:`LineLog`, to which lines are only appended.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from whetstone.core.errors import UserError

# The option that lets a command replace an existing output.
REPLACE = "--replace"

# The remedy for interrupted work that can be resumed.
GOES_ON = "free some space and run the same command again, which resumes"

_FULL_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def work_folder(work: Path, target: Path, doing: str) -> Generator[None]:
    """Create the work folder of ``target``, and lock it for this process.

    ``doing`` is a part of the error: what another process does with the target. Raises UserError.
    """
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = (work / "lock").open("w")
    except OSError as error:
        raise unwritable(target, error) from None
    with lock:
        try:
            # The kernel releases this lock when the process ends, so a killed command leaves no stale lock.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{target}: another process is {doing} it; wait, or name another --out") from None
        yield


def check_outputs(
    *outputs: str | Path | None, inputs: Iterable[str | Path] = (), replace: bool | None = False
) -> None:
    """Raise UserError if writing files or folders to ``outputs`` would destroy data that is still needed.

    An existing output is refused in three cases. It is one of ``inputs`` (under any name: relative, through a
    link), it lies in an input folder, or it contains an input. Without ``replace``, every existing output is
    refused (None: outputs of this kind are never replaced). Empty folders, devices and pipes are always
    allowed. Two outputs with the same path are refused. None is no output.
    """
    wanted = {Path(os.path.realpath(path)): path for path in outputs if path and not is_stream(path)}
    if len(wanted) < sum(1 for path in outputs if path and not is_stream(path)):
        raise UserError(f"{' and '.join(map(str, outputs))}: two outputs at one place; give each its own")
    for out, path in wanted.items():
        if above := next((wanted[place] for place in out.parents if place in wanted), None):
            raise UserError(f"{path}: lies in {above}, which is written as a whole; name another output")
        _check_output(out, path, inputs, replace)


def _check_output(out: Path, path: str | Path, inputs: Iterable[str | Path], replace: bool | None) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    for read in inputs:
        if _is_or_contains(Path(read), out) or _is_or_contains(out, Path(os.path.realpath(read))):
            raise UserError(f"{path}: would overwrite {read}, which is read; name another output")
    if not replace:
        way_out = "remove it" if replace is None else f"give {REPLACE} to replace it"
        raise UserError(f"{path}: is already there; {way_out}, or name another output")


def is_stream(path: str | Path) -> bool:
    """Return whether ``path`` is a device, a pipe or a descriptor (``/dev/stdout``), which is written to
    directly."""
    if os.path.dirname(path) in {"/dev/fd", "/proc/self/fd"} or str(path) in {"/dev/stdout", "/dev/stderr"}:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def replacing(path: str | Path) -> Generator[Path]:
    """Yield a temporary path in the same folder, which becomes ``path`` at the end of the block.

    After an exception, the old file remains. A symbolic link keeps its target, which is replaced. Missing
    folders are created. A stream is written directly. Raises UserError if the file cannot be written, or if
    the disk is full in the block; other exceptions pass.
    """
    if is_stream(path):
        with explained(path):
            yield Path(path)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        # An unwritable folder is reported before the work of the block, and not after it.
        temporary.touch()
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        with explained(path):
            yield temporary
        try:
            # Synced before the rename: after a power failure the new name must not have an empty file.
            sync(temporary)
            temporary.replace(target)
        except OSError as error:
            raise unwritable(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | Path) -> Generator[Path]:
    """Yield a temporary folder to fill, which becomes ``path`` at the end of the block.

    After an exception it is removed. ``path`` must not exist, or be an empty folder. Raises UserError if it
    cannot be written.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with explained(path):
            try:
                temporary.mkdir(parents=True)
            except OSError as error:
                raise unwritable(path, error) from None
            yield temporary
            # As in `replacing`: the contents must be on disk before the folder gets its name.
            for file in temporary.rglob("*"):
                sync(file)
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_file(path: str | Path, chunks: Iterable[bytes]) -> None:
    """Write the chunks to the file ``path``, completely or not at all. They may be read from the old file.

    Raises UserError if it cannot be written.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.writelines(chunks)


def sync(path: Path) -> None:
    """Write a file or folder to the disk now (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def no_room(error: BaseException) -> bool:
    """Return whether an exception means that a disk or quota is full, or the maximum file size was
    reached."""
    if isinstance(error, OSError):
        return error.errno in _FULL_DISK_ERRORS
    # safetensors reports its own error type, with the number in the text only.
    return any(f"os error {number})" in str(error) for number in _FULL_DISK_ERRORS)


def unwritable(path: str | Path, error: BaseException, way_out: str = "") -> UserError:
    """Return the error for an output ``path`` that could not be written. ``way_out`` is the remedy."""
    room = "free some space, or " if no_room(error) else ""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return UserError(f"{path}: cannot be written: {reason}; {way_out or f'{room}name another output'}")


@contextmanager
def explained(path: str | Path, way_out: str = "") -> Generator[None]:
    """Turn a full disk in the block into a UserError about ``path``. Other exceptions pass."""
    try:
        yield
    except Exception as error:
        if no_room(error):
            raise unwritable(path, error, way_out) from None
        raise


class LineLog:
    """A file of lines. Each line is appended completely and at once, so that a kill loses no line.

    Opening the file removes an incomplete last line, which a killed writer may have left. ``way_out`` is the
    remedy in the error for a full disk, and ``shown`` the path in that error. Raises UserError if the file
    cannot be written. Use it as a context manager or call :meth:`close`.
    """

    def __init__(self, path: str | Path, *, way_out: str = "", shown: str | Path = "") -> None:
        self.path = Path(path)
        self._shown, self._way_out = shown or path, way_out
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.open()
        except OSError as error:
            raise unwritable(self._shown, error, way_out) from None

    def open(self) -> None:
        """Open the file, or open it again after it was replaced."""
        _remove_incomplete_line(self.path)
        # Unbuffered, so that a kill loses no appended line.
        self._file = self.path.open("ab", buffering=0)

    def append(self, line: bytes, *, synced: bool = False) -> None:
        """Append a line, which ends with its newline; if ``synced``, it is on the disk when this returns."""
        with explained(self._shown, self._way_out):
            write_all(self._file, line)
            if synced:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; every line is already in it."""
        self._file.close()

    # Not by `core/closing.py`: every command loads this module, and needs no other one for it.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LockedLog(LineLog):
    """The LineLog of work that one process does at a time and that can be resumed.

    Its first line states the settings of the work. ``lines`` reads those after it. Raises UserError if
    another process has locked the file, or if it begins with another line than ``first``. ``work`` names the
    work in these errors, and ``differs`` what the settings contain.
    """

    def __init__(self, path: Path, first: bytes, *, work: str, differs: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.lines = path.open("a+b")
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            try:
                fcntl.flock(self.lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{path}: another {work} is writing it; wait for its end") from None
            super().__init__(path, way_out=GOES_ON)
            self.lines.seek(0)
            if self.path.stat().st_size == 0:
                self.append(first)
            if self.lines.readline() != first:
                raise UserError(
                    f"{path}: an interrupted {work} with another {differs}; repeat the first command to "
                    "resume it, or delete the file to start again"
                )
        except BaseException:
            self.lines.close()
            raise

    def close(self) -> None:
        """Close the file, which releases the lock."""
        super().close()
        self.lines.close()

    def remove(self) -> None:
        """Delete the file: the work is done."""
        self.path.unlink(missing_ok=True)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data to an unbuffered file, whose ``write`` may write only a part of it."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _remove_incomplete_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as written:
        end = written.seek(0, os.SEEK_END)
        tail = b""
        # Read backwards in blocks, so that a long file is not read completely.
        while end and b"\n" not in tail:
            start = max(0, end - 65536)
            written.seek(start)
            tail, end = written.read(end - start), start
        written.truncate(end + tail.rfind(b"\n") + 1)


def _is_or_contains(place: Path, path: Path) -> bool:
    """Return whether ``path``, which contains no links, is ``place`` or lies in it. Compares inodes, not
    names."""
    return place.exists() and any(os.path.samefile(place, p) for p in (path, *path.parents) if p.exists())
