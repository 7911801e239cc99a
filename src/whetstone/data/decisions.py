"""What a step decided about a problem, and why: rows of ``decisions.jsonl``.

The file is appended to while a step works, so a row may be torn when the step is killed. A row is
whole when its line ends; a torn last line never counts and is removed before the next row is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.outputs import LineLog

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


class DecisionLog(LineLog):
    """An open file of decisions, to append to."""

    def add(self, decision: Decision) -> None:
        """Append one decision."""
        self.append(encode_decision(decision))


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
