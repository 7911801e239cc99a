"""The rollouts of a run while it is written: short columns are in memory, and texts stay in the files.

A search reads the files. Its hits in each file are cached, so that a search in a run that grew reads only the
new files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.verdict import Verdict
from whetstone.report.growing_files import FileCache, stamped
from whetstone.report.reply_rows import verdict_word
from whetstone.report.rollouts import (
    RolloutRow,
    above_group,
    groups_of,
    read_rollouts,
    rollout_columns,
    rollout_files,
    with_groups,
)

_SHORT = ["step", "problem_id", "program", "verdict", "reward", "tokens", "accepted", "finish_reason"]
_TEXTS = ["problem_id", "prompt", "reply", "program", "reason"]
_KEPT_SEARCHES = 8


class RolloutSummary(Struct, frozen=True, array_like=True):
    """The short columns of a rollout. It is an array in JSON, because a run has many.

    verdict: the ``verdict_word``. program_length: in characters; None without a program.
    """

    step: int
    row: int
    problem: str
    verdict: str
    reward: float | None
    above: float | None
    tokens: int
    program_length: int | None


class RolloutIndex:
    """The index of a run's rollouts; see the module docstring. Thread-safe."""

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self._files = FileCache(_read)
        self._searches: OrderedDict[str, FileCache[set[int]]] = OrderedDict()
        self._lock = Lock()

    def all(self) -> list[RolloutSummary]:
        """Return all present rollouts, in the order of sampling. An unreadable file has none."""
        with self._lock:
            return [row for rows in self._files.values(stamped(rollout_files(self.run_dir))) for row in rows]

    def search(self, text: str) -> list[int]:
        """Return the positions in ``all()`` of the rollouts with a text that contains this one. Case is
        ignored."""
        with self._lock:
            files = stamped(rollout_files(self.run_dir))
            # Files of earlier steps never change, so only new files are searched.
            search = self._searches.pop(text, None) or FileCache(lambda path: _search(path, text.lower()))
            self._searches[text] = search
            while len(self._searches) > _KEPT_SEARCHES:
                self._searches.popitem(last=False)
            found: list[int] = []
            start = 0
            for rows, hits in zip(self._files.values(files), search.values(files), strict=True):
                found += [start + place for place, row in enumerate(rows) if row.row in hits]
                start += len(rows)
            return found

    def group(self, step: int, row: int) -> list[RolloutRow]:
        """Return a rollout and its siblings. Raises UserError if there is no such rollout."""
        rollouts = with_groups(read_rollouts(self.run_dir, step))
        if not 0 <= row < len(rollouts):
            raise UserError(f"step {step} has {len(rollouts)} rollouts, so there is no row {row}")
        return [each for each in rollouts if each.group == rollouts[row].group]


def _read(path: Path) -> list[RolloutSummary]:
    columns = rollout_columns(path, _SHORT)
    if columns is None:
        return []
    steps, problems, programs, verdicts, rewards, tokens, accepted, finish_reasons = columns
    words = (
        verdict_word(verdict and Verdict(verdict), solved, reward, failed=finish == "abort")
        for verdict, solved, reward, finish in zip(verdicts, accepted, rewards, finish_reasons, strict=True)
    )
    lengths = (None if program is None else len(program) for program in programs)
    above = above_group(groups_of(problems), rewards)
    rows = zip(steps, range(len(steps)), problems, words, rewards, above, tokens, lengths, strict=True)
    return [RolloutSummary(*row) for row in rows]


def _search(path: Path, wanted: str) -> set[int]:
    """Return the rows of a file that contain a text in lower case."""
    texts: Iterable[list[str | None]] = rollout_columns(path, _TEXTS) or []
    return {row for column in texts for row, text in enumerate(column) if text and wanted in text.lower()}
