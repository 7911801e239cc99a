"""Rows of local files, one at a time: Parquet, JSON Lines, a JSON array, Arrow (``datasets``' own), CSV.

A row is a mapping of column names to Python values, with its place ("train.parquet, row 17") for messages.
Only some rows are in memory at a time, for Parquet at most one row group.
"""

from __future__ import annotations

import codecs
import csv
import fnmatch
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from whetstone.core.errors import UserError
from whetstone.core.long_integers import decode_json, parse_integer
from whetstone.data.files import LONGEST_ROW, bounded_lines

Row = dict[str, Any]
# The rows of a file, each with the approximate number of bytes read so far.
_Rows = Iterator[tuple[int, Row]]
# Rows that are converted to Python values at a time. One row can have tens of megabytes.
_BATCH = 16
_CHUNK = 2**20
# Metadata files in copies of hub datasets and in folders of `save_to_disk`.
_NO_ROWS = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "README.md"}


def read_rows(
    paths: Iterable[Path], on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[str, Row]]:
    """Yield (place, row) of files in the order given. Raises UserError for a file that cannot be read.

    ``on_bytes`` is called regularly with the number of bytes read of all files.
    """
    before = 0
    for path in paths:
        reader = _reader(path)
        try:
            for number, (at, row) in enumerate(reader(path), 1):
                if on_bytes is not None and number % _BATCH == 0:
                    on_bytes(before + at)
                yield f"{path}, row {number}", row
            before += path.stat().st_size
            if on_bytes is not None:
                on_bytes(before)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {error}; is the file complete?") from None


def local_files(path: Path, globs: Sequence[str] = ()) -> list[Path]:
    """Return the files with rows at ``path``, sorted: the file itself, or those below a folder.

    In a folder, the files that match one of ``globs`` (relative to it; ``*`` also matches ``/``); if none
    does, every file with a known ending. Raises UserError if there is none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    known = [file for file in sorted(path.rglob("*")) if file.is_file() and _holds_rows(path, file)]
    wanted = [f for f in known if any(fnmatch.fnmatchcase(f.relative_to(path).as_posix(), g) for g in globs)]
    if not (wanted or known):
        raise UserError(f"{path}: contains no file with rows; their names end in {', '.join(_READERS)}")
    return wanted or known


def _holds_rows(root: Path, file: Path) -> bool:
    # Hidden folders hold the caches of download tools.
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return not hidden and file.name not in _NO_ROWS and file.name.lower().endswith(tuple(_READERS))


def _reader(path: Path) -> Callable[[Path], _Rows]:
    for ending, reader in _READERS.items():
        if path.name.lower().endswith(ending):
            return reader
    raise UserError(f"{path}: unknown kind of file; names of files with rows end in {', '.join(_READERS)}")


def _parquet(path: Path) -> _Rows:
    from whetstone.core.parquet import pa, pq

    size = path.stat().st_size
    try:
        with pq.ParquetFile(path, buffer_size=_CHUNK) as table:
            done = 0
            for batch in table.iter_batches(batch_size=_BATCH):
                done += batch.num_rows
                for row in cast(list[Row], batch.to_pylist()):
                    yield size * done // table.metadata.num_rows, row
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet: {error}; is the file complete?") from None


def _arrow(path: Path) -> _Rows:
    from whetstone.core.parquet import pa

    try:
        # Mapped, so that only the batches in use are in memory.
        with pa.memory_map(str(path)) as mapped:
            for at, batch in _arrow_batches(pa, mapped):
                for start in range(0, batch.num_rows, _BATCH):
                    for row in cast(list[Row], batch.slice(start, _BATCH).to_pylist()):
                        yield at, row
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Arrow: {error}; is the file complete?") from None


def _arrow_batches(pa: Any, mapped: Any) -> Iterator[tuple[int, Any]]:
    """Yield the batches of either form with their end offsets: ``datasets`` writes the stream, Feather the
    file."""
    try:
        file = pa.ipc.open_file(mapped)
    except pa.ArrowInvalid:
        mapped.seek(0)
        for batch in pa.ipc.open_stream(mapped):
            yield mapped.tell(), batch
        return
    for number in range(file.num_record_batches):
        yield mapped.size() * (number + 1) // file.num_record_batches, file.get_batch(number)


def _csv(path: Path) -> _Rows:
    # The default limit of 128 KiB is below the size of many tests.
    csv.field_size_limit(sys.maxsize)
    with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
        # Spreadsheets of some countries write semicolons. The header shows which mark is used.
        delimiter = max(",;\t", key=text.readline().count)
        text.seek(0)
        try:
            for row in cast(Iterator[Row], csv.DictReader(text, delimiter=delimiter)):
                yield raw.tell(), row
        except csv.Error as error:
            raise UserError(f"{path}: cannot be read as CSV: {error}") from None


def _json_lines(path: Path) -> _Rows:
    with _open(path) as (raw, lines):
        for number, line in enumerate(bounded_lines(lines, path), 1):
            # Some programs begin a file with a byte order mark.
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                place = f"{path}, line {number}"
                yield raw.tell(), _row(_decode(text, place), place)


def _json(path: Path) -> _Rows:
    """Read a JSON array, or JSON Lines with the extension of one, which is common."""
    with _open(path) as (_, content):
        head = content.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"["):
        return _json_array(path)
    return _json_lines(path)


def _json_array(path: Path) -> _Rows:
    """Yield the elements one by one; an element is decoded as soon as it is complete."""
    decoder = json.JSONDecoder(parse_int=parse_integer)
    with _open(path) as (raw, content):
        text = _JsonText(content, path)
        text.skip("[")
        count = 0
        while text.peek() != "]":
            if count:
                text.skip(",")
            count += 1
            place = f"{path}, row {count}"
            yield raw.tell(), _row(text.value(decoder, place), place)


class _JsonText:
    """A reader of characters that loads no more of a file than needed."""

    def __init__(self, content: IO[bytes], path: Path) -> None:
        self._content = content
        # A chunk may end inside a character.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._path = path
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is not white space."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._load_more(_CHUNK):
                raise UserError(f"{self._path}: the JSON array does not end; is the file complete?")

    def skip(self, character: str) -> None:
        """Skip the next character that is not white space, which must be ``character``."""
        if self.peek() != character:
            raise UserError(f"{self._path}: not a JSON array: `{character}` expected, `{self.peek()}` found")
        self._at += 1

    def value(self, decoder: json.JSONDecoder, place: str) -> Any:
        """Return the next JSON value. The buffer is doubled until the value is complete, so time is
        linear."""
        self.peek()
        while True:
            try:
                value, self._at = decoder.raw_decode(self._text, self._at)
                return value
            except (ValueError, RecursionError) as error:
                buffered = len(self._text) - self._at
                if buffered > LONGEST_ROW or not self._load_more(max(_CHUNK, buffered)):
                    raise UserError(f"{place}: not JSON: {error}; is the file complete?") from None

    def _load_more(self, size: int) -> bool:
        data = self._content.read(size)
        self._text = self._text[self._at :] + self._decoder.decode(data, final=not data)
        self._at = 0
        return bool(data)


@contextmanager
def _open(path: Path) -> Generator[tuple[IO[bytes], IO[bytes]]]:
    """Open the raw file and its content, which differ for a compressed file."""
    with path.open("rb") as raw:
        if not path.name.lower().endswith(".gz"):
            yield raw, raw
            return
        with gzip.GzipFile(fileobj=raw) as content:
            yield raw, cast(IO[bytes], content)


def _decode(line: bytes, place: str) -> Any:
    try:
        return decode_json(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON in UTF-8: {error}; each line is one row") from None


def _row(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise UserError(f"{place}: a {type(value).__name__}; a row is an object of columns")
    return cast(Row, value)


# Ending of a file's name -> its reader.
_READERS: dict[str, Callable[[Path], _Rows]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".json": _json,
    ".json.gz": _json,
    ".csv": _csv,
    ".tsv": _csv,
}
