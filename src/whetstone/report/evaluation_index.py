"""The replies of an evaluation by problem, also while it is written. Texts stay in the file."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from whetstone.environments.prompt import Prompt
from whetstone.evaluate.folder import PROMPTS_FILE, SAMPLES_FILE, read_prompts
from whetstone.evaluate.results import SampleResult
from whetstone.report.growing_files import LineTail
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


class EvaluationIndex:
    """The index of an evaluation's replies; see the module docstring. Thread-safe."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._tail = LineTail(self.folder / SAMPLES_FILE)
        self._problems: dict[str, list[IndexedReply]] = {}
        # For each text the lines that were not searched yet, and the problems whose replies contain it.
        self._searches: OrderedDict[str, tuple[LineTail, set[str]]] = OrderedDict()
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
            with self._tail.path.open("rb") as file:
                lines = [os.pread(file.fileno(), place.size, place.offset) for place in places]
        found = [sample for line in lines if (sample := _decode(line)) and sample.problem_id == problem]
        return sorted(found, key=lambda sample: sample.index)[:most]

    def problems_with_text(self, text: str) -> set[str]:
        """Return the problems with a text in their id, a reply or a program. Case is ignored."""
        wanted = text.lower()
        with self._lock:
            self._update()
            tail, hits = self._searches.pop(text, None) or (LineTail(self._tail.path), set[str]())
            for _, line in tail.added(hits.clear):
                sample = _decode(line)
                if sample and wanted in f"{sample.text}\0{sample.program or ''}".lower():
                    hits.add(sample.problem_id)
            self._searches[text] = tail, hits
            # The least recent search is dropped. Each keeps the names of its hits only, but clients may send
            # any number.
            while len(self._searches) > _KEPT_SEARCHES:
                self._searches.popitem(last=False)
            return hits | {name for name in self._problems if wanted in name.lower()}

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
        """Read what was added. The end of an evaluation replaces the file, which is then read again."""
        for offset, line in self._tail.added(self._forget):
            if sample := _decode(line):
                indexed = _indexed(sample, offset, len(line))
                self._problems.setdefault(sample.problem_id, []).append(indexed)

    def _forget(self) -> None:
        self._problems.clear()
        self._searches.clear()


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
