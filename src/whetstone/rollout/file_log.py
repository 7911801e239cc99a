"""The event log of a flow on disk. It survives a kill, and its size is bounded.

It is a folder of files. Each file begins with a snapshot of the whole state, followed by every event since
then with its groups. Once a file is long, a new one begins, and files without groups that may still be read
are removed. A record is ``size, CRC-32, size of the event, number of groups, sizes of the groups`` (32 bits
each, little endian), the event, the groups.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import sync, unwritable
from whetstone.rollout.events import Event, apply
from whetstone.rollout.group_facts import LogLocation, checksum
from whetstone.rollout.state import FlowState

FILE_BYTES = 64 << 20
_MAGIC = b"WSFLOW1\n"
_HEAD = struct.Struct("<IIII")
_NAME = re.compile(r"log-(\d{8,18})", re.ASCII)
_REMEDY = "free some space: the flow then continues, and replicas repeat their deliveries"
_EVENTS = msgspec.msgpack.Decoder(Event)


class _LogSnapshot(Struct):
    """The first record of a file: the run, and the state."""

    run: str
    state: FlowState


class FileLog:
    """The log in ``folder``; ``state`` is the state that it holds, None if it is empty.

    run: identifies this run; the log of another run is refused. Raises UserError for that, for a folder that
    is in use or cannot be written, and for files that are no log.
    """

    def __init__(self, folder: Path, run: str, *, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self._run, self._file_bytes = folder, run, file_bytes
        self._open: dict[int, int] = {}
        self._number, self._end = 0, 0
        self.state: FlowState | None = None
        self.truncated_bytes = 0
        """Bytes cut off at the end: an incomplete record of a killed process, which never counted."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            # The kernel releases this lock when the process ends, however it ends.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another flow uses it; stop that flow, or give another folder (`flow.log`)"
            ) from None
        except OSError as error:
            raise unwritable(folder, error) from None
        if files := _log_files(folder):
            self._number = max(files)
            self.state = self._restore()

    def begin(self, state: FlowState) -> None:
        """Start a log with ``state`` as its first snapshot."""
        self._start_file(state)

    def append(
        self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False
    ) -> list[LogLocation]:
        """See Log."""
        number, start = self._number, self._end
        record = _record(msgspec.msgpack.encode(event), payloads)
        file = self._file(number)
        try:
            _write_all(file, record, start)
            if synced:
                os.fsync(file)
        except OSError as error:
            # An incomplete record is invalid, and the next one overwrites it.
            os.ftruncate(file, start)
            raise unwritable(self.folder, error, _REMEDY) from None
        self._end = start + len(record)
        offset = self._end - sum(map(len, payloads))
        locations: list[LogLocation] = []
        for data in payloads:
            locations.append(LogLocation(number, offset, len(data), checksum(data)))
            offset += len(data)
        return locations

    def read(self, location: LogLocation) -> bytes:
        """See Log. Raises UserError if the bytes are not those that were written."""
        # With its own offset, so that reading does not move the position of other uses.
        data = os.pread(self._file(location.file), location.size, location.offset)
        if len(data) != location.size or checksum(data) != location.crc:
            raise UserError(f"{self._path(location.file)}: the disk returned other bytes than were written")
        return data

    def compact(self, state: FlowState) -> None:
        """See Log."""
        # A snapshot costs time, so it is only made when a file is large.
        if self._end < self._file_bytes:
            return
        try:
            self._start_file(state)
        except UserError:
            # The disk has no room for a snapshot. The next record may still fit, so a later call tries again.
            self._file_bytes += max(self._file_bytes // 8, 1)

    def close(self) -> None:
        """Close the files. Nothing is lost if it is not called."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()
        self._lock.close()

    def _start_file(self, state: FlowState) -> None:
        number = self._number + 1
        path = self._path(number)
        record = _MAGIC + _record(msgspec.msgpack.encode(_LogSnapshot(self._run, state)), ())
        # A kill leaves the old file, or the new one with its complete snapshot.
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            if self._number:
                # The snapshot refers to groups of the old file, which must be on disk first.
                os.fsync(self._file(self._number))
            temporary.write_bytes(record)
            sync(temporary)
            temporary.rename(path)
            sync(self.folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise unwritable(self.folder, error, _REMEDY) from None
        self._number, self._end = number, len(record)
        needed = state.log_files() | {number}
        for old, path in _log_files(self.folder).items():
            if old not in needed:
                if old in self._open:
                    os.close(self._open.pop(old))
                path.unlink()

    def remove(self) -> None:
        """Delete the folder of a closed log that is not needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _restore(self) -> FlowState | None:
        path = self._path(self._number)
        data = path.read_bytes()
        found = _records(data, len(_MAGIC))
        try:
            _, end, snapshot, _ = next(found)
            snapshot_record = msgspec.msgpack.decode(snapshot, type=_LogSnapshot)
        except (StopIteration, ValueError, RecursionError):
            raise UserError(
                f"{path}: not a flow log of this version; give another folder (`flow.log`)"
            ) from None
        if not data.startswith(_MAGIC):
            raise UserError(f"{path}: not a flow log of this version; give another folder (`flow.log`)")
        if snapshot_record.run != self._run:
            if snapshot_record.state.is_new and next(found, None) is None:
                # A log without events holds nothing to lose.
                return None
            raise UserError(
                f"{self.folder}: the log belongs to another run; give another folder (`flow.log`), or "
                "remove it"
            )
        for _, end, event, sizes in found:
            offset, places = end - sum(sizes), list[LogLocation]()
            for size in sizes:
                group = data[offset : offset + size]
                places.append(LogLocation(self._number, offset, size, checksum(group)))
                offset += size
            apply(snapshot_record.state, _EVENTS.decode(event), places)
        self._end, self.truncated_bytes = end, len(data) - end
        # A process that was killed while it wrote leaves an incomplete record, which is not part of the
        # state.
        os.ftruncate(self._file(self._number), end)
        return snapshot_record.state

    def _path(self, number: int) -> Path:
        return self.folder / f"log-{number:08d}"

    def _file(self, number: int) -> int:
        if number not in self._open:
            self._open[number] = os.open(self._path(number), os.O_RDWR)
        return self._open[number]


def _log_files(folder: Path) -> dict[int, Path]:
    """Return the files of a log by number, ascending; other files, such as copies, are not among them."""
    found = ((_NAME.fullmatch(path.name), path) for path in sorted(folder.glob("log-*")))
    return {int(match[1]): path for match, path in found if match}


def _record(event: bytes, payloads: Sequence[bytes]) -> bytes:
    sizes = struct.pack(f"<{len(payloads)}I", *map(len, payloads))
    body = b"".join((sizes, event, *payloads))
    return _HEAD.pack(len(body), zlib.crc32(body), len(event), len(payloads)) + body


def _records(data: bytes, start: int) -> Iterator[tuple[int, int, bytes, tuple[int, ...]]]:
    """Yield the complete records from ``start``: start, end, event, and the sizes of the groups."""
    while start + _HEAD.size <= len(data):
        size, crc, event_size, count = _HEAD.unpack_from(data, start)
        at = start + _HEAD.size
        end = at + size
        body = memoryview(data)[at:end]
        # No event is empty, but a machine crash may leave a range of zeros.
        if not event_size or len(body) < size or zlib.crc32(body) != crc:
            return
        # The checksum does not cover the head, which may be damaged too.
        if 4 * count + event_size > size:
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
