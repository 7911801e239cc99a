"""metrics.jsonl: the truth about a run. One JSON object a line, appended, flushed and synced.

Record shape: ``{"step": int, "kind": "train" | "eval" | "warmup", "section/name": number, ...}``.
Whatever depends on the clock stands in a nested mapping under ``"time"`` and nowhere else, so that
two runs of the same seed can be compared byte for byte without it. Keys are sorted and floats are
written as their shortest exact decimal. JSON has no NaN: non-finite numbers are the strings
``"nan"``, ``"inf"`` and ``"-inf"``, which :func:`read_metrics` turns back into floats.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from whetstone.errors import UserError
from whetstone.outputs import GOES_ON, LineLog, write_file

Record = dict[str, Any]
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class MetricsWriter(LineLog):
    """Appends records to a file; use it as a context manager or call :meth:`close`."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, way_out=GOES_ON)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, stamped with ``time.at`` (Unix seconds); it is on disk when this returns.

        Raises ValueError without step or kind.
        """
        clock = {"at": round(time.time(), 3), **record.get("time", {})}
        self.append(encode_record({**record, "time": clock}), synced=True)

    def truncate_after(self, step: int) -> int:
        """Drop the records of steps later than ``step``; resuming from a checkpoint calls this.

        The file is replaced in one rename, so a kill leaves the old or the new one. Returns how
        many records were dropped.
        """
        lines = self.path.read_bytes().splitlines(keepends=True)
        kept = [
            line for number, line in enumerate(lines, 1) if _parse(self.path, number, line)["step"] <= step
        ]
        if len(kept) == len(lines):
            return 0
        self.close()
        write_file(self.path, kept)
        self.open()
        return len(lines) - len(kept)


def encode_record(record: Mapping[str, Any]) -> bytes:
    """The record's line, newline included. The same record always gives the same bytes."""
    if not isinstance(record.get("step"), int) or not isinstance(record.get("kind"), str):
        raise ValueError("a metrics record needs an integer `step` and a `kind`")
    text = json.dumps(_finite(dict(record)), sort_keys=True, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8") + b"\n"


def read_metrics(path: str | Path) -> list[Record]:
    """All records, in file order. A half-written last line is left out: the writer may be at work.

    Raises UserError when the file is missing, or naming the line that is not a record.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; give the folder of a run, with metrics.jsonl in it"
        ) from None
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [_parse(file, number, line) for number, line in enumerate(lines, 1)]


class MetricsTail:
    """The records of a file that grows: each look reads what was added since the last one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records: list[Record] = []
        self._read, self._file = 0, 0

    @property
    def stamp(self) -> tuple[int, int]:
        """What changes with the records: which file, and how much of it was read."""
        return self._file, self._read

    def look(self) -> None:
        """Take in what is new.

        A file that was replaced is read anew, one that is not there has no records. Raises UserError for a
        line that is no record.
        """
        try:
            with self.path.open("rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self._file or state.st_size < self._read:
                    self.records, self._read, self._file = [], 0, state.st_ino
                file.seek(self._read)
                content = file.read()
        except OSError:
            self.records, self._read, self._file = [], 0, 0
            return
        whole = content[: content.rfind(b"\n") + 1]
        first = len(self.records) + 1
        self.records += [_parse(self.path, n, line) for n, line in enumerate(whole.splitlines(), first)]
        self._read += len(whole)


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{path}:{number}: not a JSON record ({error}); delete this line to go on") from None
    record = cast(Record, value) if isinstance(value, dict) else {}
    if not isinstance(record.get("step"), int) or not isinstance(record.get("kind"), str):
        raise UserError(
            f"{path}:{number}: a record needs an integer `step` and a `kind`; delete this line to go on"
        )
    return {key: _thaw(item) for key, item in record.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _thaw(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thaw(item) for key, item in cast(Record, value).items()}
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value
