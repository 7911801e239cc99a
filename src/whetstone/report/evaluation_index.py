"""The replies of an evaluation by problem, also while it is written. Texts stay in the file."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from whetstone.environments.prompt import Prompt
from whetstone.evaluate.folder import PROMPTS_FILE, SAMPLES_FILE, read_prompts
from whetstone.evaluate.results import SampleResult
from whetstone.report.reply_rows import verdict_word

_DECODER = msgspec.json.Decoder(SampleResult)
_KEPT_SEARCHES = 8


class IndexedReply(Struct, frozen=True):
    """The position of a reply in the file, in bytes, and its result. ``verdict`` is its ``verdict_word``, the
    others are those of ``SampleResult``."""

    offset: int
    size: int
    verdict: str
    decided: bool
    solved: bool
    reward: float | None


class _Search(Struct):
    """A search: how far the file was read, in bytes, and the problems whose replies contain the text."""

    end: int = 0
    found: set[str] = msgspec.field(default_factory=set[str])


class EvaluationIndex:
    """The index of an evaluation's replies; see the module docstring. Thread-safe."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._file = self.folder / SAMPLES_FILE
        self._problems: dict[str, list[IndexedReply]] = {}
        self._inode = self._end = 0
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._prompts: tuple[float, dict[str, Prompt]] = (-1.0, {})
        self._lock = Lock()

    def problems(self) -> dict[str, list[IndexedReply]]:
        """Return the replies by problem, in the order of the file."""
        with self._lock:
            self._update()
            return {name: list(replies) for name, replies in self._problems.items()}

    def replies(self, problem: str, most: int) -> list[SampleResult]:
        """Return the first replies to a problem, by index."""
        with self._lock:
            self._update()
            places = self._problems.get(problem, [])
            if not places:
                return []
            with self._file.open("rb") as file:
                lines = [os.pread(file.fileno(), place.size, place.offset) for place in places]
        found = [sample for line in lines if (sample := _decode(line)) and sample.problem_id == problem]
        return sorted(found, key=lambda sample: sample.index)[:most]

    def problems_with_text(self, text: str) -> set[str]:
        """Return the problems with a text in their id, a reply or a program. Case is ignored."""
        wanted = text.lower()
        with self._lock:
            self._update()
            search = self._searches.pop(text, None) or _Search()
            for line in self._lines(search.end):
                search.end += len(line)
                sample = _decode(line)
                if sample and wanted in f"{sample.text}\0{sample.program or ''}".lower():
                    search.found.add(sample.problem_id)
            self._searches[text] = search
            # The least recent search is dropped. Each keeps the names of its hits only, but clients may send
            # any number.
            while len(self._searches) > _KEPT_SEARCHES:
                self._searches.popitem(last=False)
            return search.found | {name for name in self._problems if wanted in name.lower()}

    def prompt(self, problem: str) -> Prompt | None:
        """Return the prompt of a problem; None if it was not stored."""
        try:
            modified_at = (self.folder / PROMPTS_FILE).stat().st_mtime
        except OSError:
            return None
        with self._lock:
            if self._prompts[0] != modified_at:
                self._prompts = modified_at, read_prompts(self.folder)
            return self._prompts[1].get(problem)

    def _update(self) -> None:
        """Read what was added. A replaced file is read again: the end of an evaluation replaces it."""
        try:
            state = self._file.stat()
        except OSError:
            state = None
        if state is None or state.st_ino != self._inode or state.st_size < self._end:
            self._problems, self._end = {}, 0
            self._inode = state.st_ino if state else 0
            self._searches.clear()
        for line in self._lines(self._end) if state else []:
            sample = _decode(line)
            if sample:
                self._problems.setdefault(sample.problem_id, []).append(
                    _indexed(sample, self._end, len(line))
                )
            self._end += len(line)

    def _lines(self, start: int) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(start)
            # The last line is incomplete while a writer appends it.
            yield from (line for line in file if line.endswith(b"\n"))


def _indexed(sample: SampleResult, offset: int, size: int) -> IndexedReply:
    verdict = sample.judgement.verdict if sample.judgement else None
    word = verdict_word(verdict, sample.accepted, sample.reward, failed=sample.failed)
    return IndexedReply(offset, size, word, sample.decided, sample.solved, sample.reward)


def _decode(line: bytes) -> SampleResult | None:
    """Return the reply in a line; None for any other line."""
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError:
        return None
