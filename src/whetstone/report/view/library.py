"""The runs, evaluations and data sets of the viewed folders, with the contents that were read.

Each has an id. A request names an id, never a path, so nothing else is ever read.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.run_lock import is_locked
from whetstone.data.card import CARD_FILE
from whetstone.data.case_inputs import CaseInputs
from whetstone.evaluate.folder import SAMPLES_FILE
from whetstone.evaluate.results import EVALUATION_FILE, headline_key
from whetstone.report.evaluation_index import EvaluationIndex
from whetstone.report.evaluation_page import problem_sets_of
from whetstone.report.growing_files import file_stamp
from whetstone.report.metrics import MetricsTail, Record, seconds_by_step
from whetstone.report.rollout_index import RolloutIndex
from whetstone.report.run_data import RunData, problem_sets, read_recipe, recipe_section, run_of
from whetstone.report.run_page import PARTNERS, run_page
from whetstone.report.signs import Signs
from whetstone.report.starts import NOTES_FILE, STARTS_FILE

# The depth of the search for runs, in folders.
DEPTH = 3
_NOT_SEARCHED = frozenset({"checkpoints", "rollouts", "logs", "flow", "views", "node_modules"})
_RUN_FILES = ("recipe.yaml", "metrics.jsonl", "rollouts", "evaluations", STARTS_FILE, NOTES_FILE)

Kind = Literal["run", "evaluation", "data"]


class ViewedFolder(Struct, frozen=True):
    """A folder with a page. ``run``: the id of the run that the evaluation belongs to, or empty."""

    id: str
    kind: Kind
    name: str
    path: Path
    run: str = ""


def find_places(roots: Sequence[Path]) -> dict[str, ViewedFolder]:
    """Return all runs, evaluations and data sets in the folders by id. Targets of links outside the folders
    are left out."""
    found: dict[str, ViewedFolder] = {}
    for root in roots:
        # A link could lead out of the viewed folders, so all paths are compared after links are resolved.
        inside = root.resolve()
        for place in _search(inside, root.name or str(inside), inside, DEPTH):
            found.setdefault(place.id, place)
    return found


def check_roots(roots: Sequence[Path]) -> None:
    """Raise UserError for a missing folder, and if there is nothing to view in any of them."""
    for root in roots:
        if not root.is_dir():
            raise UserError(
                f"{root}: no such folder; use one that `whetstone train` or `whetstone eval` writes to"
            )
    if not find_places(roots):
        names = ", ".join(map(str, roots))
        raise UserError(
            f"{names}: there is no run, evaluation or data set, {DEPTH} folders deep (recipe.yaml, "
            f"metrics.jsonl, {SAMPLES_FILE}, {CARD_FILE}); use a folder that `whetstone train` or "
            "`whetstone eval` writes to, or one above it"
        )


def _search(folder: Path, name: str, inside: Path, depth: int) -> Iterator[ViewedFolder]:
    kind = _kind(folder)
    if kind is not None:
        if not _is_inside(
            folder, inside, _RUN_FILES if kind == "run" else (SAMPLES_FILE, EVALUATION_FILE, CARD_FILE)
        ):
            return
        run = _place(kind, name, folder)
        yield run
        # The evaluations of a run come in the order of their steps.
        for child in sorted(_children(folder / "evaluations"), key=_set_and_step) if kind == "run" else ():
            if _kind(child) == "evaluation" and _is_inside(child, inside, (SAMPLES_FILE, EVALUATION_FILE)):
                yield _place("evaluation", f"{name}/{child.name}", child, run.id)
        return
    for child in _children(folder) if depth else ():
        if child.name not in _NOT_SEARCHED and _is_inside(child, inside):
            yield from _search(child, f"{name}/{child.name}", inside, depth - 1)


def _set_and_step(folder: Path) -> tuple[str, int]:
    """Return the problem set and the step of a folder ``step-N-SET``."""
    _, _, rest = folder.name.partition("-")
    number, _, name = rest.partition("-")
    return name, int(number) if number.isdigit() else 0


def _place(kind: Kind, name: str, folder: Path, run: str = "") -> ViewedFolder:
    # The id depends on the path only, so that links to a page remain valid after a restart.
    return ViewedFolder(hashlib.sha256(bytes(folder)).hexdigest()[:12], kind, name, folder, run)


def _kind(folder: Path) -> Kind | None:
    if (folder / "recipe.yaml").is_file() or (folder / "metrics.jsonl").is_file():
        return "run"
    if (folder / SAMPLES_FILE).is_file() or (folder / EVALUATION_FILE).is_file():
        return "evaluation"
    return "data" if (folder / CARD_FILE).is_file() else None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(
            child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")
        )
    except OSError:
        return []


def _is_inside(folder: Path, inside: Path, files: Sequence[str] = ()) -> bool:
    """Return whether a folder and these files in it are inside another folder after links are resolved."""
    return all(path.resolve().is_relative_to(inside) for path in (folder, *(folder / name for name in files)))


_REQUEST_EVERY_S = 3.0


class State(Struct, frozen=True):
    """``word``: running, ended or died. ``step`` of ``steps`` are finished (0: the number is unknown).

    ``reward`` is the mean reward of the last step, and ``heldout`` the name and value of the main result on
    held-out problems at the last evaluation. ``at``: when the last record was written, in Unix seconds.
    ``roles``: a line for each role. ``left_s``: the estimated seconds until the last step of a running run;
    None if nothing is known.
    """

    word: str
    step: int
    steps: int
    reward: float | None
    heldout: tuple[str, float] | None
    at: float | None
    roles: list[str]
    left_s: float | None


class Roles:
    """The state of the roles of runs. It is requested at most every few seconds, for any number of viewers.

    request: returns a line for each role of the run in a folder, empty for a run of one process. It may raise
    UserError.
    """

    def __init__(self, request: Callable[[Path], list[str]]) -> None:
        self._request = request
        self._cached: dict[Path, tuple[float, list[str]]] = {}
        self._lock = Lock()

    def lines_of(self, run: Path) -> list[str]:
        """Return a line for each role of a running run; none for a run of one process."""
        with self._lock:
            requested_at, lines = self._cached.get(run, (float("-inf"), []))
            if time.monotonic() - requested_at > _REQUEST_EVERY_S:
                try:
                    lines = self._request(run)
                except UserError as error:
                    lines = [str(error)]
                self._cached[run] = time.monotonic(), lines
            return lines


def state_of(folder: Path, records: Sequence[Record], recipe: Mapping[str, Any], roles: Roles) -> State:
    """Return the state of the run in a folder, from its records and from its lock on this machine."""
    trained = [record for record in records if record["kind"] == "train"]
    evaluated = [record for record in records if record["kind"] == "eval"]
    step = max((record["step"] for record in trained), default=0)
    planned = recipe_section(recipe, "trainer").get("steps")
    steps = planned if isinstance(planned, int) else 0
    running = is_locked(folder)
    complete = step >= steps if steps else any(record["step"] == step for record in evaluated if step)
    stamps = [record["time"]["at"] for record in records[-1:] if "at" in record.get("time", {})]
    return State(
        word="running" if running else "ended" if complete else "died",
        step=step,
        steps=steps,
        reward=_last(trained, "reward/mean"),
        heldout=_heldout(evaluated),
        at=stamps[0] if stamps else None,
        roles=roles.lines_of(folder) if running else [],
        left_s=_left_s(records, steps) if running else None,
    )


def _left_s(records: Sequence[Record], steps: int) -> float | None:
    """Return the time for the missing steps at the pace of the last twenty, evaluations included."""
    pace = seconds_by_step(records)[-21:]
    if len(pace) < 2 or not steps:
        return None
    (before, begun), (now, spent) = pace[0], pace[-1]
    return max(0, steps - now) * (spent - begun) / (now - before)


def _last(records: Sequence[Record], key: str) -> float | None:
    values = [record[key] for record in records if isinstance(record.get(key), int | float)]
    return values[-1] if values and abs(values[-1]) < float("inf") else None


def _heldout(evaluated: Sequence[Record]) -> tuple[str, float] | None:
    keys = [key for record in evaluated if (key := headline_key(record, "heldout"))]
    value = _last(evaluated, keys[-1]) if keys else None
    return None if value is None else (keys[-1].rpartition("/")[2], value)


class _RunView:
    """A run that is being viewed; see the module docstring. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rollouts = RolloutIndex(folder)
        self.signs = Signs(folder)
        self._tail = MetricsTail(folder / "metrics.jsonl")
        self._partners = {name: MetricsTail(folder / name / "metrics.jsonl") for name in PARTNERS}
        self._page: tuple[str, dict[str, Any]] | None = None
        self._lock = Lock()

    def records(self) -> list[Record]:
        """Return the records of the run. Raises UserError if the file contains no metrics."""
        with self._lock:
            self._tail.update()
            return list(self._tail.records)

    def recipe(self) -> dict[str, Any]:
        """Return the recipe of the run. Raises UserError."""
        return read_recipe(self.folder / "recipe.yaml")

    def data(self) -> RunData:
        """Return the present contents of the run, without its rollouts. Raises UserError."""
        return run_of(self.folder, self.records())

    def stamp(self) -> str:
        """Return a text that changes whenever the data of the page change."""
        with self._lock:
            tails = [self._tail, *self._partners.values()]
            for tail in tails:
                tail.update()
            evaluations = self.folder / "evaluations"
            names = ("recipe.yaml", STARTS_FILE, NOTES_FILE)
            files = [*(self.folder / name for name in names), *sorted(evaluations.glob("records*.jsonl"))]
            state = [
                *([tail.stamp for tail in tails]),
                *([file_stamp(file) for file in files]),
                *([file_stamp(folder / EVALUATION_FILE) for folder in sorted(evaluations.glob("step-*"))]),
            ]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return a stamp and the data of the page, built only if something has changed. Raises UserError."""
        stamp = self.stamp()
        # Live pages request the data every few seconds, and building them takes far longer than a stamp.
        if self._page is None or self._page[0] != stamp:
            partners = {
                name: run_of(self.folder / name, list(tail.records))
                for name, tail in self._partners.items()
                if tail.records
            }
            self._page = stamp, run_page(self.data(), partners)
        return self._page


_SEARCH_EVERY_S = 2.0


class Library:
    """The runs, evaluations and data sets below some folders. Thread-safe. ``role_lines``: see Roles."""

    def __init__(self, roots: Sequence[Path], role_lines: Callable[[Path], list[str]]) -> None:
        self.roots = [Path(root) for root in roots]
        self.roles = Roles(role_lines)
        self._places: dict[str, ViewedFolder] = {}
        self._searched_at = float("-inf")
        self._runs: dict[str, _RunView] = {}
        self._evaluations: dict[str, EvaluationIndex] = {}
        self._inputs: dict[str, CaseInputs] = {}
        self._lock = Lock()

    def places(self) -> dict[str, ViewedFolder]:
        """Return all runs, evaluations and data sets by id. The folders are searched at most every two
        seconds."""
        with self._lock:
            # Every open page requests the list every few seconds, and a search reads many folders.
            if time.monotonic() - self._searched_at > _SEARCH_EVERY_S:
                self._places, self._searched_at = find_places(self.roots), time.monotonic()
            return self._places

    def place(self, id: str, kind: Kind) -> ViewedFolder:
        """Return the run, evaluation or data set with an id. Raises UserError if there is none."""
        place = self.places().get(id)
        if place is None or place.kind != kind:
            raise UserError(f"there is no {kind} {id[:50]!r} here (any more); see the list of all runs")
        return place

    def run(self, id: str) -> _RunView:
        """Return a run. Raises UserError."""
        place = self.place(id, "run")
        with self._lock:
            return self._runs.setdefault(id, _RunView(place.path))

    def evaluation(self, id: str) -> EvaluationIndex:
        """Return an evaluation. Raises UserError."""
        place = self.place(id, "evaluation")
        with self._lock:
            return self._evaluations.setdefault(id, EvaluationIndex(place.path))

    def inputs(self, place: ViewedFolder) -> CaseInputs:
        """Return the inputs of the cases of a run or an evaluation, from its problem sets.

        Only sets that ship and those in the viewed folders are read.
        """
        if place.kind == "evaluation":
            sets = problem_sets_of(place.path)
        else:
            sets = problem_sets(read_recipe(place.path / "recipe.yaml"))
        with self._lock:
            return self._inputs.setdefault(place.id, CaseInputs(sets, self._is_viewed))

    def _is_viewed(self, path: Path) -> bool:
        return any(path.resolve().is_relative_to(root.resolve()) for root in self.roots)
