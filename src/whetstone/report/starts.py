"""starts.jsonl: how a run was started, one line for its beginning and one for each continuation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.outputs import LineLog

STARTS_FILE = "starts.jsonl"
NOTES_FILE = "notes.md"
# The most characters of notes on a page.
_MOST_NOTES = 20_000


class RunStart(Struct, frozen=True):
    """A start. ``at``: Unix seconds. ``commit``: of the Whetstone checkout, empty for an installed package.

    shipped: the shipped recipe of the same name, or empty.
    settings: the settings that differ from it, with its value and that of the run; without a shipped recipe,
    the settings that the recipe gives, with None and the value.
    """

    at: float
    command: str
    host: str
    commit: str
    versions: dict[str, str]
    shipped: str
    settings: dict[str, tuple[Any, Any]]


def keep_start(run: Path, start: RunStart) -> None:
    """Append a start to the folder of a run."""
    with LineLog(run / STARTS_FILE) as log:
        log.append(msgspec.json.encode(start) + b"\n")


def read_starts(run: Path) -> list[RunStart]:
    """Return the starts of a run; empty for a run of an earlier version. Damaged lines are left out."""
    decoder = msgspec.json.Decoder(RunStart)
    found: list[RunStart] = []
    try:
        lines = (run / STARTS_FILE).read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def read_notes(run: Path) -> str:
    """Return the notes that people wrote into ``notes.md`` in the folder of a run; empty without any."""
    try:
        with (run / NOTES_FILE).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_NOTES).strip()
    except OSError:
        return ""
