"""Many judgements in input order, reading only a little ahead of the one that is awaited."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from whetstone.problem import Problem, Program
from whetstone.verdict import Judgement

if TYPE_CHECKING:
    import asyncio

Pair = tuple[Problem | dict[str, Any], Program | None]


def in_order(
    submit: Callable[..., Future[Judgement]], pairs: Iterable[Pair], window: int, options: dict[str, Any]
) -> Iterator[Judgement]:
    """What ``submit`` promises for each pair, ``window`` of them under way; those left are cancelled."""
    flying: deque[Future[Judgement]] = deque()
    try:
        for problem, program in pairs:
            flying.append(submit(problem, program, **options))
            if len(flying) >= window:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        for future in flying:
            future.cancel()


async def awaited_in_order(
    submit: Callable[..., asyncio.Future[Judgement]],
    pairs: Iterable[Pair],
    window: int,
    options: dict[str, Any],
) -> AsyncIterator[Judgement]:
    """The same for coroutines."""
    flying: deque[asyncio.Future[Judgement]] = deque()
    try:
        for problem, program in pairs:
            flying.append(submit(problem, program, **options))
            if len(flying) >= window:
                yield await flying.popleft()
        while flying:
            yield await flying.popleft()
    finally:
        for future in flying:
            future.cancel()
