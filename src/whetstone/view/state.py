"""How a run stands: whether it runs, has ended or died, and what each of its roles waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import Struct

from whetstone.errors import UserError
from whetstone.launch.run_lock import is_locked
from whetstone.report.metrics import Record

_ASK_AGAIN_S = 3.0


class State(Struct, frozen=True):
    """``word``: running, ended or died. ``step`` of ``steps`` are made (0: nobody said how many).

    ``reward`` and ``passed``: the mean reward of the last step, pass@1 on held-out problems at the last
    evaluation. ``at``: when the last record was written, in Unix seconds. ``roles``: a line for each.
    """

    word: str
    step: int
    steps: int
    reward: float | None
    passed: float | None
    at: float | None
    roles: list[str]


class Roles:
    """The state of the roles of runs, requested at most every few seconds for any number of viewers.

    request: returns a line for each role of the run in a folder, empty for a run of one process. It may raise
    UserError.
    """

    def __init__(self, request: Callable[[Path], list[str]]) -> None:
        self._request = request
        self._said: dict[Path, tuple[float, list[str]]] = {}
        self._lock = Lock()

    def of(self, run: Path) -> list[str]:
        """A line for each role of a run that runs now; none where it is one process."""
        with self._lock:
            asked, said = self._said.get(run, (float("-inf"), []))
            if time.monotonic() - asked > _ASK_AGAIN_S:
                said = self._lines(run)
                self._said[run] = time.monotonic(), said
            return said

    def _lines(self, run: Path) -> list[str]:
        try:
            return self._request(run)
        except UserError as error:
            return [str(error)]


def state_of(folder: Path, records: Sequence[Record], recipe: Mapping[str, Any], roles: Roles) -> State:
    """How the run in a folder stands, by its records and by who holds its lock on this machine."""
    trained = [record for record in records if record["kind"] == "train"]
    evaluated = [record for record in records if record["kind"] == "eval"]
    step = max((record["step"] for record in trained), default=0)
    trainer = recipe.get("trainer")
    planned = trainer.get("steps") if isinstance(trainer, dict) else None
    steps = planned if isinstance(planned, int) else 0
    runs = is_locked(folder)
    whole = step >= steps if steps else any(record["step"] == step for record in evaluated if step)
    stamps = [record["time"]["at"] for record in records[-1:] if "at" in record.get("time", {})]
    return State(
        word="running" if runs else "ended" if whole else "died",
        step=step,
        steps=steps,
        reward=_last(trained, "reward/mean"),
        passed=_last(evaluated, "eval/heldout/pass@1"),
        at=stamps[0] if stamps else None,
        roles=roles.of(folder) if runs else [],
    )


def _last(records: Sequence[Record], key: str) -> float | None:
    values = [record[key] for record in records if isinstance(record.get(key), int | float)]
    return values[-1] if values and abs(values[-1]) < float("inf") else None
