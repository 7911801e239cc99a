"""``AsyncJudge``: ``Judge`` for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement
from whetstone.judge.api import Judge
from whetstone.judge.in_order import Pair, awaited_in_order


class AsyncJudge:
    """``Judge`` for coroutines. Any number of judgements may be pending at once."""

    def __init__(self, workers: int = 0, **settings: Any) -> None:
        """The same as ``Judge``. Starting takes a moment, in which the event loop does not run."""
        self._judge = Judge(workers, **settings)

    @property
    def isolation(self) -> str:
        """The isolation tier of the programs."""
        return self._judge.isolation

    @property
    def minimum_tier(self) -> str:
        """The weakest isolation that programs may run with."""
        return self._judge.minimum_tier

    @property
    def environment(self) -> str:
        """The packages that Python code may import, as judgements name them."""
        return self._judge.environment

    def worker_pids(self) -> list[int]:
        """Return the ids of the worker processes, for monitoring and measurements."""
        return self._judge.worker_pids()

    async def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Judgement:
        """Judge one program; see ``Judge.submit``. A cancelled await stops it, waiting or running."""
        return await asyncio.wrap_future(self._judge.submit(problem, program, **options))

    def judge_many(self, pairs: Iterable[Pair], **options: Any) -> AsyncIterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""

        def submit(
            problem: Problem | dict[str, Any], program: Program | None, **options: Any
        ) -> asyncio.Future[Judgement]:
            return asyncio.wrap_future(self._judge.submit(problem, program, **options))

        return awaited_in_order(submit, pairs, self._judge.window, options)

    async def close(self) -> None:
        """End the workers. Pending judgements are cancelled."""
        await asyncio.to_thread(self._judge.close)

    async def __aenter__(self) -> AsyncJudge:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
