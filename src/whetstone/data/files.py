"""Problem files: JSON Lines (``.jsonl``, ``.jsonl.gz``) and Parquet (``.parquet``).

All three contain the published schema and nothing else, so problems are read back equal. A file is written
to a temporary name and renamed: a reader sees the old file or the new one.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import replacing
from whetstone.core.problem import Problem
from whetstone.data.explain import explain

Format = Literal["jsonl", "jsonl.gz", "parquet"]


def read_problems(path: str | Path) -> Iterator[Problem]:
    """Yield the problems of a file, in file order, while reading it.

    Raises UserError naming file, line (JSON Lines) or row (Parquet) and field for a value that does not
    fit the schema, for a duplicate id, and for a file that cannot be read.
    """
    file = Path(path)
    kind = file_format(file)
    if not file.is_file():
        reason = "is a folder" if file.is_dir() else "no such file"
        raise UserError(f"{file}: {reason}; give a .jsonl, .jsonl.gz or .parquet file of problems")
    if kind == "parquet":
        from whetstone.data.parquet import read_rows

        return _distinct(file, "row", read_rows(file))
    return _distinct(file, "line", _read_lines(file, kind))


def write_problems(path: str | Path, problems: Iterable[Problem]) -> int:
    """Write ``problems`` and return their number. The file extension selects the format.

    Raises UserError for an id that occurs twice, and for a value that JSON cannot hold (a NaN, a
    set, a mapping with keys that are not text): it would be read back as something else.
    """
    file = Path(path)
    kind = file_format(file)
    checked = checked_problems(file, problems)
    with replacing(file) as temporary:
        if kind == "parquet":
            from whetstone.data.parquet import write_rows

            return write_rows(temporary, checked)
        return _write_lines(temporary, kind, checked)


def no_problems(name: str | Path) -> UserError:
    """Return the error for a set without problems, which may be an empty file."""
    file = Path(name)
    if file.is_file() and not file.stat().st_size:
        return UserError(f"{name}: the file is empty")
    split = str(name).rpartition(":")[2]
    if split in ("train", "validation"):
        return UserError(
            f"{name}: the split is empty; name the other split or a file, or prepare the set with another "
            "--validation SHARE"
        )
    return UserError(f"{name}: contains no problems")


def file_format(path: Path) -> Format:
    """Return the format of a file's extension. Raises UserError for an unknown one."""
    name = path.name.lower()
    endings: tuple[Format, ...] = ("jsonl", "jsonl.gz", "parquet")
    for ending in endings:
        if name.endswith("." + ending):
            return ending
    raise UserError(f"{path}: the name of a problem file ends in .jsonl, .jsonl.gz or .parquet")


def _read_lines(file: Path, kind: Format) -> Iterator[tuple[int, Problem]]:
    decoder = msgspec.json.Decoder(Problem)
    opened = gzip.open if kind == "jsonl.gz" else open
    try:
        with opened(file, "rb") as lines:
            for number, line in enumerate(bounded_lines(cast(IO[bytes], lines), file), 1):
                # Editors of some systems open a file with a byte-order mark, which is not JSON.
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if text.strip():
                    yield number, _decode(decoder, text, f"{file}, line {number}")
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{file}: cannot be read: {error}; is the file complete?") from None


def _decode(decoder: msgspec.json.Decoder[Problem], text: bytes, place: str) -> Problem:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise UserError(f"{place}: {explain(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{place}: not JSON in UTF-8: {error}; each line is one problem") from None


def _distinct(file: Path, unit: str, numbered: Iterable[tuple[int, Problem]]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, problem in numbered:
        first = seen.setdefault(problem.id, number)
        if first != number:
            raise UserError(
                f"{file}, {unit} {number}: id {problem.id!r} was already given in {unit} {first}; "
                "every problem needs an id of its own"
            )
        yield problem


def _write_lines(file: Path, kind: Format, problems: Iterable[Problem]) -> int:
    count = 0
    with ExitStack() as stack:
        raw = stack.enter_context(file.open("wb"))
        sink: IO[bytes] = raw
        if kind == "jsonl.gz":
            # No name and no time in the gzip header: the same problems give the same bytes.
            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
            sink = cast(IO[bytes], stack.enter_context(packed))
        for problem in problems:
            sink.write(msgspec.json.encode(problem) + b"\n")
            count += 1
    return count


def checked_problems(file: Path, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield ``problems`` unchanged. Raises UserError for a problem that a file would not preserve."""
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise UserError(
                f"{file}: problem {problem.id!r} is given twice; every problem needs an id of its own"
            )
        seen.add(problem.id)
        check_plain(problem, f"{file}: ")
        yield problem


def check_plain(problem: Problem, place: str = "") -> None:
    """Raise UserError, beginning with ``place``, for a value that JSON would lose or change."""
    _check_plain(problem, f"{place}problem {problem.id!r}", "")


def _check_plain(value: Any, place: str, path: str) -> None:
    """Raise UserError for a value that JSON would change."""
    if isinstance(value, Struct):
        # msgspec.structs.fields() would resolve every annotation again, which takes a hundred times longer
        # than the rest.
        for field, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            _check_plain(getattr(value, field), place, f"{path}.{encoded}" if path else encoded)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(cast(Iterable[Any], value)):
            _check_plain(item, place, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in cast(dict[Any, Any], value).items():
            if not isinstance(key, str):
                raise UserError(f"{place}: `{path}` has the key {key!r}, but keys in JSON are text")
            _check_plain(key, place, path)
            _check_plain(item, place, f"{path}.{key}")
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise UserError(f"{place}: `{path}` holds half a surrogate pair, which UTF-8 cannot represent")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"{place}: `{path}` is {value}, which JSON cannot represent")
    # A field that is not set is not written.
    elif value is not None and value is not UNSET and not isinstance(value, int):
        raise UserError(f"{place}: `{path}` is a {type(value).__name__}, which JSON cannot represent")


# Most bytes of one row; the largest known rows have tens of megabytes.
LONGEST_ROW = 1 << 28


def bounded_lines(file: IO[bytes], name: object) -> Iterator[bytes]:
    """Yield the lines of ``file``. Raises UserError, which begins with ``name``, for a line above
    ``LONGEST_ROW``, before the rest of it is read: a small compressed file can contain one huge line."""
    number = 0
    while line := file.readline(LONGEST_ROW + 1):
        number += 1
        if len(line) > LONGEST_ROW:
            raise UserError(
                f"{name}, line {number}: longer than {LONGEST_ROW >> 20} MB, which no row is; each line "
                "is one row"
            )
        yield line


def plain_lines(text: str) -> str:
    """Return a text without a byte order mark and with LF at the ends of lines."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
