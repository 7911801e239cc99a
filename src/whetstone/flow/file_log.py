"""The log of a flow on a disk: what it has written survives a kill, and it never grows without end.

A folder of files. Each begins with the books as they were, whole; then comes every event since, with the
groups that it brought. Once a file is long another is begun, and files in which nothing lies that may still
be asked for are removed. A record is ``size, CRC-32, size of the event, number of groups, sizes of the
groups`` (32 bits each, little endian), the event, the groups.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.flow.books import Books
from whetstone.flow.events import Event, apply
from whetstone.flow.facts import Place, checksum
from whetstone.outputs import sync, unwritable

FILE_BYTES = 64 << 20
_MAGIC = b"WSFLOW1\n"
_HEAD = struct.Struct("<IIII")
_WAY_OUT = "free some space: the flow goes on where it was, and replicas deliver again what they could not"
_EVENTS = msgspec.msgpack.Decoder(Event)


class Snapshot(Struct):
    """The first record of a file: of which run it is, and the books."""

    run: str
    books: Books


class FileLog:
    """The log in ``folder``; ``books`` is what it says, None where it says nothing yet.

    run: what tells this run from others; the log of another one is refused. Raises UserError for that, for a
    folder that is in use or cannot be written, and for files that are no log.
    """

    def __init__(self, folder: Path, run: str, *, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self._run, self._file_bytes = folder, run, file_bytes
        self._open: dict[int, int] = {}
        self._number, self._end = 0, 0
        self.books: Books | None = None
        self.cut = 0
        """Bytes at the end that were cut off: a record that a kill had torn, and that never counted."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another flow uses it; end that one, or name another folder (`flow.log`)"
            ) from None
        except OSError as error:
            raise unwritable(folder, error) from None
        numbers = sorted(int(path.name[4:]) for path in folder.glob("log-[0-9]*[0-9]"))
        if numbers:
            self._number = numbers[-1]
            self.books = self._restored()

    def begin(self, books: Books) -> None:
        """Start a log in which nothing has happened but ``books``."""
        self._roll(books)

    def append(self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False) -> list[Place]:
        """See Log."""
        number, start = self._number, self._end
        record = _record(msgspec.msgpack.encode(event), payloads)
        file = self._file(number)
        try:
            _write_all(file, record, start)
            if synced:
                os.fsync(file)
        except OSError as error:
            # Half a record counts for nothing, and the next one is written over it.
            os.ftruncate(file, start)
            raise unwritable(self.folder, error, _WAY_OUT) from None
        self._end = start + len(record)
        offset = self._end - sum(map(len, payloads))
        places: list[Place] = []
        for data in payloads:
            places.append(Place(number, offset, len(data), checksum(data)))
            offset += len(data)
        return places

    def read(self, place: Place) -> bytes:
        """See Log. Raises UserError for bytes that are not what was written."""
        data = os.pread(self._file(place.file), place.size, place.offset)
        if len(data) != place.size or checksum(data) != place.crc:
            raise UserError(f"{self._path(place.file)}: the disk gives other bytes than were written there")
        return data

    def tidy(self, books: Books) -> None:
        """See Log."""
        if self._end < self._file_bytes:
            return
        try:
            self._roll(books)
        except UserError:
            # No room for another file; there may be enough for the next record, and later for both.
            self._file_bytes += max(self._file_bytes // 8, 1)

    def close(self) -> None:
        """Let go of the files; nothing is lost by not calling it."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()
        self._lock.close()

    def _roll(self, books: Books) -> None:
        number = self._number + 1
        path = self._path(number)
        record = _MAGIC + _record(msgspec.msgpack.encode(Snapshot(self._run, books)), ())
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            if self._number:
                os.fsync(self._file(self._number))  # the groups that the books speak of
            temporary.write_bytes(record)
            sync(temporary)
            temporary.rename(path)
            sync(self.folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise unwritable(self.folder, error, _WAY_OUT) from None
        self._number, self._end = number, len(record)
        self._remove_all_but(books.files() | {number})

    def _remove_all_but(self, needed: set[int]) -> None:
        for path in self.folder.glob("log-[0-9]*[0-9]"):
            number = int(path.name[4:])
            if number not in needed:
                if number in self._open:
                    os.close(self._open.pop(number))
                path.unlink()

    def remove(self) -> None:
        """Leave nothing behind; for a closed log of which nothing is wanted."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _restored(self) -> Books | None:
        path = self._path(self._number)
        data = path.read_bytes()
        found = _records(data, len(_MAGIC))
        try:
            _, end, snapshot, _ = next(found)
            said = msgspec.msgpack.decode(snapshot, type=Snapshot)
        except (StopIteration, msgspec.MsgspecError):
            raise UserError(f"{path}: is no log of a flow of this version; name another folder") from None
        if not data.startswith(_MAGIC):
            raise UserError(f"{path}: is no log of a flow of this version; name another folder")
        if said.run != self._run:
            if said.books.blank and next(found, None) is None:
                return None  # it binds nobody
            raise UserError(
                f"{self.folder}: is the log of another run; name another folder (`flow.log`), or remove it"
            )
        for _, end, event, sizes in found:
            offset, places = end - sum(sizes), list[Place]()
            for size in sizes:
                group = data[offset : offset + size]
                places.append(Place(self._number, offset, size, checksum(group)))
                offset += size
            apply(said.books, _EVENTS.decode(event), places)
        self._end, self.cut = end, len(data) - end
        os.ftruncate(self._file(self._number), end)
        return said.books

    def _path(self, number: int) -> Path:
        return self.folder / f"log-{number:08d}"

    def _file(self, number: int) -> int:
        if number not in self._open:
            self._open[number] = os.open(self._path(number), os.O_RDWR)
        return self._open[number]


def _record(event: bytes, payloads: Sequence[bytes]) -> bytes:
    sizes = struct.pack(f"<{len(payloads)}I", *map(len, payloads))
    body = b"".join((sizes, event, *payloads))
    return _HEAD.pack(len(body), zlib.crc32(body), len(event), len(payloads)) + body


def _records(data: bytes, start: int) -> Iterator[tuple[int, int, bytes, tuple[int, ...]]]:
    """The whole records from ``start`` on: where each begins and ends, its event, the sizes of its groups."""
    while start + _HEAD.size <= len(data):
        size, crc, event_size, count = _HEAD.unpack_from(data, start)
        at = start + _HEAD.size
        end = at + size
        body = memoryview(data)[at:end]
        # No event is empty; what a crash of the machine leaves may be zeros.
        if not event_size or len(body) < size or zlib.crc32(body) != crc:
            return
        sizes = struct.unpack_from(f"<{count}I", data, at)
        if 4 * count + event_size + sum(sizes) != size:
            return
        at += 4 * count
        yield start, end, data[at : at + event_size], sizes
        start = end


def _write_all(file: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written
