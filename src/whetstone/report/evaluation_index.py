"""The replies of an evaluation, finished or being written, by problem: verdicts are held, texts stay in the
file."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from whetstone.evaluate.folder import PROMPTS_FILE, SAMPLES_FILE, read_prompts
from whetstone.evaluate.results import SampleResult
from whetstone.workflow.prompt import Prompt

_DECODER = msgspec.json.Decoder(SampleResult)
_KEPT_SEARCHES = 8


class Reply(Struct, frozen=True):
    """A reply's place in the file, in bytes, and what the judge said (``failed``: it could not be had)."""

    offset: int
    size: int
    verdict: str
    accepted: bool


class _Search(Struct):
    """How far a text was searched for, and the problems in whose replies it stands."""

    end: int = 0
    found: set[str] = msgspec.field(default_factory=set[str])


class EvaluationIndex:
    """See the module's text. May be asked by several threads."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._file = self.folder / SAMPLES_FILE
        self._problems: dict[str, list[Reply]] = {}
        self._inode = self._end = 0
        self._searches: OrderedDict[str, _Search] = OrderedDict()
        self._prompts: tuple[float, dict[str, Prompt]] = (-1.0, {})
        self._lock = Lock()

    def problems(self) -> dict[str, list[Reply]]:
        """The replies that there are by problem, in the order of the file."""
        with self._lock:
            self._look()
            return {name: list(replies) for name, replies in self._problems.items()}

    def replies(self, problem: str, most: int) -> list[SampleResult]:
        """The first replies to a problem, by their number; none where there are none."""
        with self._lock:
            self._look()
            places = self._problems.get(problem, [])
            if not places:
                return []
            with self._file.open("rb") as file:
                lines = [os.pread(file.fileno(), place.size, place.offset) for place in places]
        found = [sample for line in lines if (sample := _decoded(line)) and sample.problem_id == problem]
        return sorted(found, key=lambda sample: sample.index)[:most]

    def holding(self, text: str) -> set[str]:
        """The problems with a text in their id, in a reply or its program, in letters of either case."""
        wanted = text.lower()
        with self._lock:
            self._look()
            search = self._searches.pop(text, None) or _Search()
            for line in self._lines(search.end):
                search.end += len(line)
                sample = _decoded(line)
                if sample and wanted in f"{sample.text}\0{sample.program or ''}".lower():
                    search.found.add(sample.problem_id)
            self._searches[text] = search
            while len(self._searches) > _KEPT_SEARCHES:
                self._searches.popitem(last=False)
            return search.found | {name for name in self._problems if wanted in name.lower()}

    def prompt(self, problem: str) -> Prompt | None:
        """How a problem was put to the model; None where that was not kept."""
        try:
            written = (self.folder / PROMPTS_FILE).stat().st_mtime
        except OSError:
            return None
        with self._lock:
            if self._prompts[0] != written:
                self._prompts = written, read_prompts(self.folder)
            return self._prompts[1].get(problem)

    def _look(self) -> None:
        """Take in what was added; a file that was replaced, as it is at the end, is read anew."""
        try:
            state = self._file.stat()
        except OSError:
            state = None
        if state is None or state.st_ino != self._inode or state.st_size < self._end:
            self._problems, self._end = {}, 0
            self._inode = state.st_ino if state else 0
            self._searches.clear()
        for line in self._lines(self._end) if state else []:
            sample = _decoded(line)
            if sample:
                said = sample.judgement.verdict.value if sample.judgement else "failed"
                reply = Reply(self._end, len(line), said, sample.accepted)
                self._problems.setdefault(sample.problem_id, []).append(reply)
            self._end += len(line)

    def _lines(self, start: int) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(start)
            yield from (line for line in file if line.endswith(b"\n"))


def _decoded(line: bytes) -> SampleResult | None:
    """None for a line that is no reply: an evaluation is shown whatever else is in its file."""
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError:
        return None
