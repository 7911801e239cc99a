"""Request replies to many problems from an endpoint, without repeating any.

Replies are stored in a journal (``journal.py``), so that an interrupted run is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems
from whetstone.environments.conversation import Reply
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyRequest, ReplyWriter
from whetstone_curation.journal import CheckerJournal, ReplyEntry

Watch = Callable[[str, int, int], None]
"""Called with the phase ("asking 2" or "trying 2"), the number of finished items, and their total."""


class ReplyRounds:
    """Requests replies to problems of a set. ``plan.n`` is the most replies for one problem."""

    def __init__(
        self,
        source: str | Path,
        writer: ReplyWriter,
        plan: SamplingPlan,
        question: Callable[[Problem], str],
        journal: CheckerJournal,
        *,
        say: Callable[[str], None] = lambda line: None,
        minute_s: float = 60.0,
    ) -> None:
        """``question`` makes the prompt; ``say`` gets a line about pending requests every ``minute_s``
        seconds."""
        self._source, self._writer, self._plan, self._question = source, writer, plan, question
        self._journal, self._say, self._minute_s = journal, say, minute_s
        self._done = 0
        self.failures: dict[str, str] = {}
        """Problems whose last request failed, with the error."""

    def ask(self, wanting: Mapping[str, str], attempt: int, watch: Watch) -> None:
        """Request one reply for each of the problems ``wanting`` without one of this attempt. They are given
        by their ids, with their digests."""
        replies = self._journal.replies
        missing = {id_: digest for id_, digest in wanting.items() if (id_, digest, attempt) not in replies}
        if missing:
            asyncio.run(self._ask(missing, attempt, watch))

    def check(self) -> None:
        """Raise UserError if there is no reply at all and some request failed."""
        if self.failures and not self._journal.replies:
            id_, error = next(iter(self.failures.items()))
            raise UserError(f"every request failed; the first, for {id_}: {error}; repeat the command")

    async def _ask(self, missing: dict[str, str], attempt: int, watch: Watch) -> None:
        self._done = 0
        minutes = asyncio.create_task(self._minutes(f"asking {attempt + 1}", len(missing)))
        try:
            async for request, reply in self._writer.write(self._questions(missing, attempt)):
                self._done += 1
                watch(f"asking {attempt + 1}", self._done, len(missing))
                id_ = request.problem.id
                # A failed request is not stored, so the next run repeats it.
                if reply.finish_reason == "failed":
                    self.failures[id_] = reply.error
                    continue
                # A later attempt may succeed where an earlier one failed.
                self.failures.pop(id_, None)
                self._journal.add(ReplyEntry(id_, missing[id_], attempt, _storable(reply)))
        finally:
            minutes.cancel()
            await self._writer.close()

    async def _minutes(self, what: str, of: int) -> None:
        while True:
            await asyncio.sleep(self._minute_s)
            parts = [f"{what}: {self._done} of {of} replies", self._writer.waiting()]
            self._say(", ".join(part for part in parts if part))

    def _questions(self, missing: Collection[str], attempt: int) -> Iterator[ReplyRequest]:
        for problem in open_problems(self._source):
            if problem.id in missing:
                yield ReplyRequest(
                    problem=problem,
                    prompt=Prompt(self._question(problem), "", chat=True),
                    n=self._plan.n,
                    seed=self._plan.seed_of(problem.id),
                    # One attempt at a time: problems that have a checker by then are not asked again.
                    wanted=frozenset([attempt]),
                )


def _storable(reply: Reply) -> str:
    """Return the reply as text that UTF-8 can represent."""
    # A model can emit lone surrogates, which JSON cannot store.
    return reply.text.encode("utf-8", "replace").decode()


def cut(text: str, most: int) -> str:
    """Return a part of a prompt, without the characters above ``most``, which a note counts."""
    text = text.strip("\n")
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most} more characters]"
