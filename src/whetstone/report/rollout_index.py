"""The rollouts of a run, page by page: what is short of each is held, its texts stay in the files.

A run of 100,000 rollouts is filtered and sorted by what is held. A search reads the files, and what it found
in each is kept, so that the next page, and a look at a run that grew, read only what is new.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.report.groups import Placed, above_group, groups_of, placed
from whetstone.report.query import Query, listed
from whetstone.report.rollouts import read_rollouts, rollout_files

_SHORT = ["step", "problem_id", "program", "verdict", "reward", "tokens"]
_TEXTS = ["problem_id", "prompt", "reply", "program", "reason"]
_KEPT_SEARCHES = 8


class Brief(Struct, frozen=True):
    """What is held of a rollout; ``program_length`` is in characters, None without a program."""

    step: int
    row: int
    problem: str
    verdict: str
    reward: float | None
    above: float | None
    tokens: int
    program_length: int | None


FILTERS: dict[str, Callable[[Brief], Any]] = {
    "step": lambda its: its.step,
    "problem": lambda its: its.problem,
    "verdict": lambda its: its.verdict,
}
SORTS: dict[str, Callable[[Brief], Any]] = {
    "as sampled": lambda its: its.step,
    "newest first": lambda its: -its.step,
    "highest reward": lambda its: -_known(its.reward, -1e300),
    "lowest reward": lambda its: _known(its.reward, 1e300),
    "most above its group": lambda its: -_known(its.above, -1e300),
    "longest": lambda its: -its.tokens,
    "shortest": lambda its: its.tokens,
    "shortest program": lambda its: _known(its.program_length, 1e300),
    "verdict": lambda its: its.verdict,
}


class _File(Struct, frozen=True):
    """A file as it was when it was read."""

    path: Path
    stamp: tuple[int, int, int]


class RolloutIndex:
    """See the module's text. May be asked by several threads."""

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self._files: dict[_File, list[Brief]] = {}
        self._all: list[Brief] = []
        self._searches: OrderedDict[str, dict[_File, set[int]]] = OrderedDict()
        self._lock = Lock()

    def all(self) -> list[Brief]:
        """All that there are now, in the order sampled.

        A file that cannot be read as rollouts has none: a run is shown whatever else is in its folder.
        """
        with self._lock:
            return self._look()

    def page(self, query: Query) -> dict[str, Any]:
        """``rows`` of the page, how many were ``found``, ``of`` how many."""
        with self._lock:
            everything = self._look()
            found = self._holding(query.text) if query.text else everything
        for name, value in query.filters.items():
            its = FILTERS[name]
            found = [brief for brief in found if str(its(brief)) == value]
        ordered = sorted(found, key=SORTS[query.sort or "as sampled"])
        rows = ordered[query.start : query.start + query.count]
        return {
            "rows": [msgspec.to_builtins(row) for row in rows],
            "found": len(found),
            "of": len(everything),
        }

    def values(self) -> dict[str, dict[str, Any]]:
        """By filter: its values, see ``query.listed``."""
        everything = self.all()
        return {name: listed(Counter(map(its, everything))) for name, its in FILTERS.items()}

    def group(self, step: int, row: int) -> list[Placed]:
        """A rollout and its siblings. Raises UserError where there is none."""
        rollouts = placed(read_rollouts(self.run_dir, step))
        if not 0 <= row < len(rollouts):
            raise UserError(f"step {step} has {len(rollouts)} rollouts, and no row {row}")
        return [each for each in rollouts if each.group == rollouts[row].group]

    def _look(self) -> list[Brief]:
        """Take in files that are new or were replaced, let go of those that are gone."""
        there = [_File(path, stamp) for path in rollout_files(self.run_dir) if (stamp := file_stamp(path))]
        if there != list(self._files):
            known = self._files
            self._files = {file: known[file] if file in known else _read(file.path) for file in there}
            self._all = [brief for briefs in self._files.values() for brief in briefs]
        return self._all

    def _holding(self, text: str) -> list[Brief]:
        """Those of which a text holds this one, in letters of either case."""
        known = self._searches.pop(text, {})
        hits = {
            file: known[file] if file in known else _search(file.path, text.lower()) for file in self._files
        }
        self._searches[text] = hits
        while len(self._searches) > _KEPT_SEARCHES:
            self._searches.popitem(last=False)
        return [brief for file, briefs in self._files.items() for brief in briefs if brief.row in hits[file]]


def _known(value: float | None, without: float) -> float:
    return without if value is None else value


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file of rollouts; None for one that is not there."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


def file_columns(path: Path, names: list[str]) -> list[list[Any]] | None:
    """Columns of a file; None for one that has no such, or is none."""
    try:
        # One thread: files are small, and handing their columns around costs more than reading them.
        read = pq.read_table(path, columns=names, use_threads=False)
        return [read.column(name).to_pylist() for name in names]
    except (OSError, pa.ArrowException, KeyError):
        return None


def _read(path: Path) -> list[Brief]:
    columns = file_columns(path, _SHORT)
    if columns is None:
        return []
    problems, rewards = columns[1], columns[4]
    above = above_group(groups_of(problems), rewards)
    rows = zip(*columns, above, strict=True)
    return [
        Brief(
            *(step, row, problem, verdict or "judge_error", reward, its, tokens),
            program_length=None if program is None else len(program),
        )
        for row, (step, problem, program, verdict, reward, tokens, its) in enumerate(rows)
    ]


def _search(path: Path, wanted: str) -> set[int]:
    """The rows of a file that hold a text in small letters."""
    texts: Iterable[list[str | None]] = file_columns(path, _TEXTS) or []
    return {row for column in texts for row, text in enumerate(column) if text and wanted in text.lower()}
