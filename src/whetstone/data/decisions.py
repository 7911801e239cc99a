"""What a step decided about a problem, and why: rows of ``decisions.jsonl``.

The file is appended to while a step works, so a row may be torn when the step is killed. A row is
whole when its line ends; a torn last line never counts and is removed before the next row is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from whetstone.errors import UserError

Action = Literal["keep", "mark", "drop"]


class Decision(Struct, frozen=True, omit_defaults=True):
    """One decision about one problem; a row of a source that is no problem has the row's id.

    ``step`` is one of import, validate, dedupe, decontaminate, difficulty, select, split. ``reason`` is a
    short stable slug to count by (``no_tests``); ``detail`` is one line for a person; ``source`` the
    source's name.
    """

    problem_id: str
    step: str
    action: Action
    reason: str
    detail: str = ""
    source: str = ""


class DecisionLog:
    """An open file of decisions, to append to: each row is written whole, at once."""

    def __init__(self, path: str | Path) -> None:
        self.file = Path(path)
        try:
            _cut_torn_line(self.file)
            self._sink = self.file.open("ab", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from None

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._sink.close()

    def add(self, decision: Decision) -> None:
        """Append one decision."""
        try:
            self._sink.write(encode_decision(decision))
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"{self.file}: cannot be written: {error.strerror or error}")


def append_decisions(path: str | Path, decisions: Iterable[Decision]) -> int:
    """Append ``decisions`` as they come, and return how many they were."""
    count = 0
    with DecisionLog(path) as log:
        for decision in decisions:
            log.add(decision)
            count += 1
    return count


def encode_decision(decision: Decision) -> bytes:
    """The decision as a line of the file; half a surrogate pair, which UTF-8 cannot hold, becomes ``?``."""
    try:
        return msgspec.json.encode(decision) + b"\n"
    except UnicodeEncodeError:
        fields = {name: str(value) for name, value in msgspec.structs.asdict(decision).items()}
        mended = {name: value.encode(errors="replace").decode() for name, value in fields.items()}
        return msgspec.json.encode(msgspec.convert(mended, Decision)) + b"\n"


def read_decisions(path: str | Path) -> Iterator[Decision]:
    """Yield the decisions of a file, one at a time. Raises UserError naming the line that is none."""
    file = Path(path)
    decoder = msgspec.json.Decoder(Decision)
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise UserError(f"{file}, line {number}: not a decision: {error}") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from None


def _cut_torn_line(file: Path) -> None:
    if not file.exists():
        return
    with file.open("rb+") as written:
        end = written.seek(0, 2)
        tail = b""
        # Backwards in blocks: a long file is not read for its last line.
        while end and b"\n" not in tail:
            start = max(0, end - 65536)
            written.seek(start)
            tail, end = written.read(end - start), start
        written.truncate(end + tail.rfind(b"\n") + 1)
