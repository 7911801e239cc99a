"""Decisions of a step about problems, with reasons: rows of ``decisions.jsonl``.

A step appends rows while it works, so a killed step may leave a torn last row. A row is complete if its line
ends. A torn row never counts, and is removed before the next row is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import LineLog

Action = Literal["keep", "mark", "drop"]


class ProblemDecision(Struct, frozen=True, omit_defaults=True):
    """A decision about a problem. A row of a source that became no problem has the id of the row.

    ``step`` is one of import, validate, dedupe, decontaminate, difficulty, select, split. ``reason`` is a
    short stable word to count by (``no_tests``); ``detail`` is one line of explanation; ``source`` is the
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

    def add(self, decision: ProblemDecision) -> None:
        """Append one decision as a line. A lone surrogate, which UTF-8 cannot encode, becomes ``?``."""
        try:
            line = msgspec.json.encode(decision)
        except UnicodeEncodeError:
            fields = {name: str(value) for name, value in msgspec.structs.asdict(decision).items()}
            mended = {name: value.encode(errors="replace").decode() for name, value in fields.items()}
            line = msgspec.json.encode(msgspec.convert(mended, ProblemDecision))
        self.append(line + b"\n")


def read_decisions(path: str | Path) -> Iterator[ProblemDecision]:
    """Yield the decisions of a file, one at a time. Raises UserError with the number of an invalid line."""
    file = Path(path)
    decoder = msgspec.json.Decoder(ProblemDecision)
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                # The step was killed while it wrote this line.
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise UserError(f"{file}, line {number}: not a decision: {error}") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from None
