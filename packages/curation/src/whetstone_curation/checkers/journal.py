"""A journal of replies and trials on disk, so that no request is repeated after an interruption.

It has a line for each reply and each trial. A killed run leaves complete lines and at most one torn one,
which the next run removes. A failed request has no line: it is repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import LockedLog
from whetstone_curation.checkers.evidence import CheckerEvidence


class _JournalHeader(Struct, frozen=True, tag="asked"):
    """The first line: the model and the settings of the requests."""

    how: dict[str, Any]


class ReplyEntry(Struct, frozen=True, tag="answered"):
    """A reply. ``digest`` is that of its problem; ``attempt`` counts from 0."""

    problem_id: str
    digest: str
    attempt: int
    text: str


class TrialEntry(Struct, frozen=True, tag="tried"):
    """A trial with its ``evidence`` and the ``source`` of a kept checker, or the reason why there is none."""

    problem_id: str
    digest: str
    attempt: int
    source: str = ""
    evidence: CheckerEvidence | None = None
    reason: str = ""
    detail: str = ""


class CheckerJournal(LockedLog):
    """A context manager. Raises UserError if another run has locked the file or used another model."""

    def __init__(self, path: Path, how: dict[str, Any]) -> None:
        first = msgspec.json.encode(_JournalHeader(how)) + b"\n"
        super().__init__(path, first, work="run", differs="model or other settings")
        self.replies: dict[tuple[str, str, int], str] = {}
        self.trials: dict[tuple[str, str, int], TrialEntry] = {}
        decoder = msgspec.json.Decoder(ReplyEntry | TrialEntry)
        for number, line in enumerate(self.lines, 2):
            try:
                self._remember(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.close()
                raise UserError(
                    f"{self.path}, line {number}: {error}; delete the file to start again"
                ) from None

    def add(self, line: ReplyEntry | TrialEntry) -> None:
        """Write a line at once."""
        self.append(msgspec.json.encode(line) + b"\n")
        self._remember(line)

    def _remember(self, line: ReplyEntry | TrialEntry) -> None:
        if isinstance(line, ReplyEntry):
            self.replies[line.problem_id, line.digest, line.attempt] = line.text
        else:
            self.trials[line.problem_id, line.digest, line.attempt] = line
