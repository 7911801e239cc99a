"""The estimated total time of a run, from the steps and evaluations that it has made so far."""

from __future__ import annotations

from whetstone.progress import duration

_FEW_STEPS, _ENOUGH_S = 3, 30.0
"""The first estimate comes after so many steps, or after so many seconds of steps."""
_PART, _PART_S = 0.05, 15.0
"""A part of the first evaluation is enough for an estimate of all, if it took so long."""
_REFINED_AT = (0.25, 0.5)
"""The shares of the steps after which the estimate is made again."""
_DIFFERENT = 0.2
_WORTH_S = 20.0


class Forecast:
    """Estimates of a run's time. Methods that return text return what to print, or nothing.

    now: seconds, of any clock that goes forward. began: when the command began. steps: left to make.
    evaluations: left to make in this process.
    """

    def __init__(self, now: float, *, began: float, steps: int, evaluations: int) -> None:
        self._began = began
        self._steps, self._evaluations = steps, evaluations
        self._made = self._evaluated = 0
        self._step_s = self._evaluation_s = 0.0
        self._evaluating_since: float | None = None
        self._part_told = False
        self._last = now
        self._told: float | None = None
        self._checks = [round(share * steps) for share in _REFINED_AT]

    def evaluating(self, share: float, now: float) -> str:
        """``share`` of an evaluation is done: 0 when it begins, 1 when it ends."""
        if share == 0:
            self._evaluating_since = now
        since = self._last if self._evaluating_since is None else self._evaluating_since
        seconds = now - since
        if share >= 1:
            self._evaluated += 1
            self._evaluation_s += seconds
            self._evaluating_since, self._last = None, now
        first = self._evaluated == (share >= 1) and not self._made
        if self._part_told or not first or share < _PART or seconds < _PART_S or self._evaluations < 2:
            return ""
        self._part_told = True
        total = self._evaluations * seconds / share
        return f"estimated time of all {self._evaluations} evaluations: about {duration(total)}"

    def stepped(self, now: float) -> str:
        """A step is complete."""
        self._made += 1
        self._step_s += now - self._last
        self._last = now
        left = self._left()
        total = now - self._began + left
        if self._told is None:
            due = self._made >= _FEW_STEPS or self._step_s >= _ENOUGH_S
            if not due or left < _WORTH_S:
                return ""
        elif self._made not in self._checks or abs(total - self._told) < _DIFFERENT * self._told:
            return ""
        self._told = total
        return f"estimated total: about {duration(total)} ({self._parts()} to go)"

    def _left(self) -> float:
        return self._steps_left * self._a_step + self._evaluations_left * self._an_evaluation

    @property
    def _steps_left(self) -> int:
        return max(0, self._steps - self._made)

    @property
    def _evaluations_left(self) -> int:
        """Those whose time is known; before the first one is made, none is."""
        return max(0, self._evaluations - self._evaluated) if self._evaluated else 0

    @property
    def _a_step(self) -> float:
        return self._step_s / self._made

    @property
    def _an_evaluation(self) -> float:
        return self._evaluation_s / max(1, self._evaluated)

    def _parts(self) -> str:
        parts = [f"{self._steps_left} steps of {duration(self._a_step)}"]
        if self._evaluations_left:
            some = "evaluation" if self._evaluations_left == 1 else "evaluations"
            parts.append(f"{self._evaluations_left} {some} of {duration(self._an_evaluation)}")
        return ", ".join(parts)
