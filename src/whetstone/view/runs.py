"""A run that is looked at while it is written: what was read is kept, and only what is new is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from threading import Lock
from typing import Any

from whetstone.report.metrics import MetricsTail, Record
from whetstone.report.page import PARTNERS, Fragments, fragments
from whetstone.report.rollout_index import RolloutIndex
from whetstone.report.run_data import RunData, folder_stamp, read_recipe, run_of
from whetstone.report.signs import Signs


class RunView:
    """See the module's text. May be asked by several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rollouts = RolloutIndex(folder)
        self.signs = Signs(folder)
        self._tail = MetricsTail(folder / "metrics.jsonl")
        self._partners = {name: MetricsTail(folder / name / "metrics.jsonl") for name in PARTNERS}
        self._made: tuple[str, Fragments] | None = None
        self._lock = Lock()

    def records(self) -> list[Record]:
        """What the run has written down. Raises UserError for a file that is none of ours."""
        with self._lock:
            self._tail.look()
            return list(self._tail.records)

    def recipe(self) -> dict[str, Any]:
        """Its recipe. Raises UserError."""
        return read_recipe(self.folder / "recipe.yaml")

    def data(self) -> RunData:
        """The run as it stands, without its rollouts. Raises UserError."""
        return run_of(self.folder, self.records())

    def stamp(self) -> str:
        """What changes whenever the page of curves would."""
        with self._lock:
            tails = [self._tail, *self._partners.values()]
            for tail in tails:
                tail.look()
            evaluations = self.folder / "evaluations"
            files = [self.folder / "recipe.yaml", *sorted(evaluations.glob("records*.jsonl"))]
            state = [
                *([tail.stamp for tail in tails]),
                *([_stamp(file) for file in files]),
                *([folder_stamp(folder) for folder in sorted(evaluations.glob("step-*"))]),
            ]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]

    def fragments(self) -> tuple[str, Fragments]:
        """A stamp and the parts of its page, made anew only where something has changed. Raises UserError."""
        stamp = self.stamp()
        if self._made is None or self._made[0] != stamp:
            partners = {
                name: run_of(self.folder / name, list(tail.records))
                for name, tail in self._partners.items()
                if tail.records
            }
            self._made = stamp, fragments(self.data(), partners)
        return self._made


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        state = file.stat()
    except OSError:
        return 0, 0, 0
    return state.st_ino, state.st_mtime_ns, state.st_size
