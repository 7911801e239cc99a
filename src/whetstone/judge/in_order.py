"""Calls that wait for judgements, on top of ``submit``.

Many judgements are yielded in input order, and the input is read only a little ahead.
"""

from __future__ import annotations

import os
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.core.problem import NoTests, Problem, Program
from whetstone.core.verdict import Judgement

if TYPE_CHECKING:
    import asyncio

Pair = tuple[Problem | dict[str, Any], Program | None]


class BlockingJudge(Closing):
    """A judge whose ``submit`` returns futures. A context manager, which can be used after a fork."""

    def __init__(self) -> None:
        _JUDGES.add(self)

    @property
    @abstractmethod
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""

    @abstractmethod
    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Future[Judgement]:
        """Queue one program (None: the reply had none)."""

    def judge(self, problem: Problem | dict[str, Any], program: Program | None, **options: Any) -> Judgement:
        """Judge one program and wait for the judgement. See ``submit``."""
        future = self.submit(problem, program, **options)
        try:
            return future.result()
        finally:
            future.cancel()  # has an effect only when the wait was interrupted

    def judge_many(self, pairs: Iterable[Pair], **options: Any) -> Iterator[Judgement]:
        """Judge all pairs and yield the judgements in input order. Reads only a little ahead.

        If the iteration ends early, the remaining ones are cancelled.
        """
        in_flight: deque[Future[Judgement]] = deque()
        try:
            for problem, program in pairs:
                in_flight.append(self.submit(problem, program, **options))
                if len(in_flight) >= self.window:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            for future in in_flight:
                future.cancel()

    @abstractmethod
    def close(self) -> None:
        """Release the judge's resources. Pending judgements are cancelled."""

    @abstractmethod
    def reset_after_fork(self) -> None:
        """In a forked process, forget what belongs to the parent."""


_JUDGES: weakref.WeakSet[BlockingJudge] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for judge in _JUDGES:
        judge.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)


def check_program(program: object) -> None:
    """Raise TypeError for a value that is neither a program nor None."""
    if not isinstance(program, Program | None):
        raise TypeError(
            f"the program is a {type(program).__name__}; give a Program(language, source), or None"
        )


def check_tests(problem: Problem) -> None:
    """Raise UserError for a problem that cannot be judged, because it has no tests."""
    if isinstance(problem.tests, NoTests):
        raise UserError(
            f"problem {problem.id!r} has no tests (`kind: none`), so no program can be judged; give it "
            "tests, or use an environment that decides about the answer itself"
        )


async def awaited_in_order(
    submit: Callable[..., asyncio.Future[Judgement]],
    pairs: Iterable[Pair],
    window: int,
    options: dict[str, Any],
) -> AsyncIterator[Judgement]:
    """The same as ``BlockingJudge.judge_many``, for coroutines."""
    in_flight: deque[asyncio.Future[Judgement]] = deque()
    try:
        for problem, program in pairs:
            in_flight.append(submit(problem, program, **options))
            if len(in_flight) >= window:
                yield await in_flight.popleft()
        while in_flight:
            yield await in_flight.popleft()
    finally:
        for future in in_flight:
            future.cancel()
