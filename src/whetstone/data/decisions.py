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


def append_decisions(path: str | Path, decisions: Iterable[Decision]) -> int:
    """Append ``decisions`` as they come, each a whole line at once, and return how many they were."""
    file = Path(path)
    count = 0
    try:
        _cut_torn_line(file)
        with file.open("ab") as sink:
            for decision in decisions:
                sink.write(encode_decision(decision))
                count += 1
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None
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
