"""The interface to a writer of replies: prompts as text in, replies as text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Protocol

from msgspec import Struct

from whetstone.core.problem import Problem
from whetstone.environments.conversation import ModelClient, Reply
from whetstone.environments.prompt import Prompt
from whetstone.environments.turn_barrier import TurnBarrier


class ReplyRequest(Struct, frozen=True):
    """A problem to be sent to a model ``n`` times; ``wanted`` are the indices of the missing replies.

    ``seed`` fixes the random streams of the n replies, one for each index. ``number`` is the position of the
    problem.
    """

    problem: Problem
    prompt: Prompt
    n: int
    seed: int
    wanted: frozenset[int]
    number: int = 0


class ReplyWriter(ModelClient, Protocol):
    """Writes the missing first replies to a stream of requests, and further turns on request."""

    @property
    def barrier(self) -> TurnBarrier:
        """Synchronizes the further turns. Each reply that ``write`` yields is one participant."""
        ...

    def write(
        self, questions: Iterable[ReplyRequest], *, several_turns: bool = False
    ) -> AsyncGenerator[tuple[ReplyRequest, Reply], None]:
        """Yield each missing reply as it ends, in any order, reading only a little ahead.

        An error of a single reply is a reply that ``failed``. Raises UserError for errors of all replies.
        ``several_turns``: the replies are continued. Further turns are then repeatable only if all replies of
        a batch are continued, so a writer may also yield replies that are not missing.
        """
        ...

    async def close(self) -> None:
        """Close connections. Called when nothing is requested any more."""
        ...

    def waiting(self) -> str:
        """Return what the replies wait for, as text; empty if there is nothing to report."""
        ...

    def failures(self) -> str:
        """Return how many requests failed and were sent again, with the last error; empty if none did."""
        ...
