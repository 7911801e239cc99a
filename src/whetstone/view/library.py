"""Everything that is looked at: what the folders hold now, and what of it was read already."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from whetstone.errors import UserError
from whetstone.report.evaluation_index import EvaluationIndex
from whetstone.view.places import Kind, Place, find_places
from whetstone.view.runs import RunView
from whetstone.view.state import Roles

_LOOK_AGAIN_S = 2.0


class Library:
    """The runs, evaluations and data sets below some folders. Thread-safe. ``role_lines``: see Roles."""

    def __init__(self, roots: Sequence[Path], role_lines: Callable[[Path], list[str]]) -> None:
        self.roots = [Path(root) for root in roots]
        self.roles = Roles(role_lines)
        self._places: dict[str, Place] = {}
        self._looked = float("-inf")
        self._runs: dict[str, RunView] = {}
        self._evaluations: dict[str, EvaluationIndex] = {}
        self._lock = Lock()

    def places(self) -> dict[str, Place]:
        """What there is, by id; the folders are searched at most every two seconds."""
        with self._lock:
            if time.monotonic() - self._looked > _LOOK_AGAIN_S:
                self._places, self._looked = find_places(self.roots), time.monotonic()
            return self._places

    def place(self, id: str, kind: Kind) -> Place:
        """The run, evaluation or data set with an id. Raises UserError where there is none."""
        place = self.places().get(id)
        if place is None or place.kind != kind:
            raise UserError(
                f"there is no {kind} {id[:50]!r} here (any more); the list of all says what there is"
            )
        return place

    def run(self, id: str) -> RunView:
        """A run. Raises UserError."""
        place = self.place(id, "run")
        with self._lock:
            return self._runs.setdefault(id, RunView(place.path))

    def evaluation(self, id: str) -> EvaluationIndex:
        """An evaluation. Raises UserError."""
        place = self.place(id, "evaluation")
        with self._lock:
            return self._evaluations.setdefault(id, EvaluationIndex(place.path))
