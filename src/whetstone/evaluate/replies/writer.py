"""What an evaluation needs of whoever writes its replies: prompts in text in, replies in text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Protocol

from msgspec import Struct

from whetstone.problem import Problem
from whetstone.workflow.prompt import Prompt
from whetstone.workflow.replies import Reply


class Question(Struct, frozen=True):
    """A problem to be put to a model ``n`` times; ``wanted`` are the indices of replies still missing.

    ``seed`` fixes the random streams of the n replies, one for each index.
    """

    problem: Problem
    prompt: Prompt
    n: int
    seed: int
    wanted: frozenset[int]


class ReplyWriter(Protocol):
    """Writes the wanted replies to a stream of questions."""

    def write(self, questions: Iterable[Question]) -> AsyncGenerator[tuple[Question, Reply], None]:
        """Yield each wanted reply as it ends, in any order, reading only a little ahead.

        What keeps a single reply from being written is a reply that ``failed``; UserError is for
        what would keep all of them.
        """
        ...

    def waiting(self) -> str:
        """What the replies wait for, in words, beyond which they are; empty where there is nothing to say."""
        ...


class Weights(Struct, frozen=True):
    """A model for the embedded engine: ``source`` is a folder, a .gguf file or a hub id.

    ``device`` is auto, cpu, cuda or cuda:N; ``threads`` of torch are one for each core when 0.
    """

    source: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    threads: int = 0
