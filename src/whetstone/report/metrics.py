"""metrics.jsonl, the authoritative record of a run: one JSON object per line, appended, flushed and synced.

A record has the form ``{"step": int, "kind": "train" | "eval" | "warmup", "section/name": number, ...}``.
Everything that depends on the clock is in a nested mapping under ``"time"``. Without it, two runs with the
same seed can be compared byte by byte. Keys are sorted, and floats have their shortest exact decimal form.
JSON has no NaN: non-finite numbers are the strings ``"nan"``, ``"inf"`` and ``"-inf"``, which
:func:`read_metrics` turns back into floats.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any, cast

from whetstone.core.errors import UserError
from whetstone.core.outputs import GOES_ON, LineLog, write_file
from whetstone.report.growing_files import LineTail

Record = dict[str, Any]
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class MetricsWriter(LineLog):
    """Appends records to a file; use it as a context manager or call :meth:`close`."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, way_out=GOES_ON)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record with the present time as ``time.at`` (Unix seconds). It is on disk when this
        returns.

        Raises ValueError for a record without step or kind.
        """
        clock = {"at": round(time.time(), 3), **record.get("time", {})}
        self.append(encode_record({**record, "time": clock}), synced=True)

    def truncate_after(self, step: int) -> int:
        """Remove the records of steps after ``step``, before a run resumes from a checkpoint.

        The file is replaced by a single rename, so a kill leaves the old or the new one. Returns the number
        of removed records.
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
    """Return the line of a record with its newline. Equal records give equal bytes."""
    if not isinstance(record.get("step"), int) or not isinstance(record.get("kind"), str):
        raise ValueError("a metrics record needs an integer `step` and a `kind`")
    # Sorted keys, so that equal records have equal bytes.
    text = json.dumps(_encode_non_finite(dict(record)), sort_keys=True, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8") + b"\n"


def read_metrics(path: str | Path) -> list[Record]:
    """Return all records in file order. An incomplete last line is left out, because a writer may be active.

    Raises UserError for a missing file, and for a line that is no record, which it names.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; give the folder of a run, with metrics.jsonl in it"
        ) from None
    # A writer appends whole lines, so only the last line can be incomplete.
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [_parse(file, number, line) for number, line in enumerate(lines, 1)]


def seconds_by_step(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return each training step with the wall seconds from the start until its end, evaluations included.

    The time between an interruption and its continuation is left out: a gap of more than ten minutes and ten
    steps. Records without a time are skipped.
    """
    trained = [r for r in records if r["kind"] == "train" and "at" in r.get("time", {})]
    gaps = [now["time"]["at"] - before["time"]["at"] for before, now in pairwise(trained)]
    longest = max(600.0, 10 * median(gaps)) if gaps else 0.0
    first = [trained[0]["time"].get("step", 0.0)] if trained else []
    spent = accumulate([*first, *(gap if 0 <= gap <= longest else 0.0 for gap in gaps)])
    return [(record["step"], seconds) for record, seconds in zip(trained, spent, strict=True)]


class MetricsTail:
    """The records of a growing file. Each update reads only what was added since the last one."""

    def __init__(self, path: str | Path) -> None:
        self.records: list[Record] = []
        self._lines = LineTail(Path(path))

    @property
    def stamp(self) -> tuple[int, int]:
        """A value that changes with the records: the file, and the number of bytes read."""
        return self._lines.inode, self._lines.end

    def update(self) -> None:
        """Read what was added. Raises UserError for a line that is no record."""
        # Resuming replaces the file by a shorter one: see `MetricsWriter.truncate_after`.
        for _, line in self._lines.added(self.records.clear):
            self.records.append(_parse(self._lines.path, len(self.records) + 1, line))


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise UserError(
            f"{path}:{number}: not a JSON record ({error}); delete this line to continue"
        ) from None
    record = cast(Record, value) if isinstance(value, dict) else {}
    if not isinstance(record.get("step"), int) or not isinstance(record.get("kind"), str):
        raise UserError(
            f"{path}:{number}: a record needs an integer `step` and a `kind`; delete this line to continue"
        )
    return {key: _decode_non_finite(item) for key, item in record.items()}


def _encode_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _encode_non_finite(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _decode_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_non_finite(item) for key, item in cast(Record, value).items()}
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value
