"""Ours: the judge as anybody would call it, one worker, every case in its own fork."""

from __future__ import annotations

from typing import Any

from whetstone.judge import Judge, Program


class Whetstone:
    """``Judge(workers=1)``; all cases are run."""

    def __init__(self, options: dict[str, str]) -> None:
        self._judge = Judge(workers=1, minimum_tier=options["tier"])

    def judge(self, tasks: list[dict[str, Any]]) -> int:
        """The number of tasks whose program is accepted."""
        pairs = ((task["problem"], Program("python", task["source"])) for task in tasks)
        return sum(judgement.accepted for judgement in self._judge.judge_many(pairs))

    def close(self) -> None:
        """End the worker."""
        self._judge.close()
