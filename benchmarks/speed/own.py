"""Ours: the judge as anybody would call it, one worker; a fork for every case, or the cases in sequence."""

from __future__ import annotations

from typing import Any

from whetstone.judge import Judge, Program


class Whetstone:
    """``Judge(workers=1)``; all cases are run."""

    def __init__(self, options: dict[str, str]) -> None:
        self._judge = self._start(options["tier"])

    def _start(self, tier: str) -> Judge:
        return Judge(workers=1, minimum_tier=tier)

    def judge(self, tasks: list[dict[str, Any]]) -> int:
        """The number of tasks whose program is accepted."""
        pairs = ((task["problem"], Program("python", task["source"])) for task in tasks)
        return sum(judgement.accepted for judgement in self._judge.judge_many(pairs))

    def close(self) -> None:
        """End the worker."""
        self._judge.close()


class InSequence(Whetstone):
    """The same, with the cases of a program one after the other in one confined process."""

    def _start(self, tier: str) -> Judge:
        return Judge(workers=1, minimum_tier=tier, fork_per_case=False)
