"""``AsyncJudgeClient``: ``AsyncJudge`` on other machines.

What fails on the way there is tried again, on another server where there are several, and is JUDGE_ERROR in
the end: never a verdict on the program.
"""

from __future__ import annotations

import asyncio
import copy
import math
import os
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from whetstone.errors import UserError
from whetstone.judge.in_order import Pair, awaited_in_order
from whetstone.judge.options import JudgeOptions, options_with, queued_before
from whetstone.judge_service.look_up import Needs, looked_up, server_urls
from whetstone.judge_service.sending import Packed, Sent
from whetstone.judge_service.server_link import AskedInVain, ServerLink
from whetstone.problem import Problem, Program, problem_from
from whetstone.sandbox.job import Tier
from whetstone.verdict import Judgement, Verdict

TOKEN_VARIABLE = "WHETSTONE_JUDGE_TOKEN"
GIVE_UP_S = 300.0
START_S = 30.0
"""So long a client waits at its start for a server that answers."""
_NO_DEADLINE_S = 3600.0


class AsyncJudgeClient:
    """``AsyncJudge`` on servers: any number of judgements may be awaited at once, on one event loop."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | None = None,
        minimum_tier: str = "restricted",
        environment: str = "",
        give_up_s: float = GIVE_UP_S,
        **options: Any,
    ) -> None:
        """Look up the servers at ``url``, one or several; the event loop does not run in the meantime.

        token: what the servers ask for; None: WHETSTONE_JUDGE_TOKEN of the environment, if there is one.
        minimum_tier: the weakest isolation that is taken. environment: the name of the packages that the
            servers must offer to programs; empty for any, as long as all have the same.
        give_up_s: when requests have failed for so long, and none was answered in between, they are
            JUDGE_ERROR; so is one whose ``deadline_s`` has passed.
        options: how programs are judged; see ``JudgeOptions``.

        Raises UserError where no server answers, or they are not what is asked for, SandboxUnavailable for
        too weak an isolation, TypeError for an unknown option.
        """
        options_with(JudgeOptions(), options)
        self._options = options
        self._urls = server_urls(url)
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
        self._needs = Needs(minimum_tier, environment)
        self._give_up_s = give_up_s
        self._packed = Packed()
        self._failing_since: float | None = None
        found = looked_up(self._urls, self._token, self._needs, min(give_up_s, START_S)).values()
        self.isolation = min((info.isolation for info in found), key=lambda label: Tier[label.upper()])
        """The weakest tier that holds the programs."""
        self.environment = next(info.environment for info in found)
        """The packages that Python code may import, as judgements name them."""
        self.window = sum(info.window for info in found)
        """How many programs ``judge_many`` keeps in flight."""
        self._links = [ServerLink(url, self._token) for url in self._urls]

    def renewed(self) -> AsyncJudgeClient:
        """The same with connections of its own, for another event loop or process."""
        other = copy.copy(self)
        other._packed, other._failing_since = Packed(), None
        other._links = [ServerLink(url, self._token) for url in self._urls]
        return other

    async def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Judgement:
        """Judge one program; see ``Judge.submit``. A cancelled await stops it, waiting or running."""
        return await self.send(*self.prepared(problem, program, options))

    def judge_many(self, pairs: Iterable[Pair], **options: Any) -> AsyncIterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""

        def submit(
            problem: Problem | dict[str, Any], program: Program | None, **options: Any
        ) -> asyncio.Task[Judgement]:
            return asyncio.ensure_future(self.judge(problem, program, **options))

        return awaited_in_order(submit, pairs, self.window, options)

    def prepared(
        self, problem: Problem | dict[str, Any], program: Program | None, options: dict[str, Any]
    ) -> tuple[Sent, Program | None, dict[str, Any]]:
        """What ``send`` takes. Raises UserError and TypeError as ``Judge.submit`` does."""
        problem = problem_from(problem)
        if not isinstance(program, Program | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the program is a {type(program).__name__}; give a Program(language, source), or None"
            )
        wanted = {**self._options, **options}
        options_with(JudgeOptions(), wanted)
        return self._packed(problem), program, wanted

    async def send(self, sent: Sent, program: Program | None, options: dict[str, Any]) -> Judgement:
        """The judgement on what is ``prepared``. Raises UserError where the servers say it is wrong."""
        if program is None or not program.source.strip():
            return self._unjudged(Verdict.NO_CODE, "there is no program")
        asked_s = options.get("deadline_s")
        began = time.monotonic()
        deadline = math.inf if asked_s is None else began + asked_s
        while True:
            left_s = min(deadline - time.monotonic(), _NO_DEADLINE_S)
            if left_s <= 0:
                return self._unjudged(Verdict.JUDGE_ERROR, "not judged: its deadline passed")
            link = min(self._links, key=_preference)
            wait_s = link.rests_until - time.monotonic()
            if wait_s > 0:  # all of them rest
                await asyncio.sleep(min(wait_s * random.uniform(1.0, 1.5), max(left_s, 0.0)))
                continue
            try:
                await self._known(link)
                queued_s = queued_before(options) + time.monotonic() - began
                judgement = await link.judge(sent, program, {**options, "queued_s": queued_s}, left_s)
            except AskedInVain as failure:
                if self._gives_up():
                    return self._unjudged(Verdict.JUDGE_ERROR, f"no server judged it: {failure}")
            else:
                self._failing_since = None
                return judgement

    async def _known(self, link: ServerLink) -> None:
        """See to it that a server is what is needed, the first time and after each of its failures."""
        if link.info is None:
            info = await link.look()
            try:
                self._needs.check(link.url, info, self.environment)
            except UserError as error:
                link.is_not_needed()
                raise AskedInVain(str(error)) from None

    def _gives_up(self) -> bool:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since >= self._give_up_s

    def _unjudged(self, verdict: Verdict, reason: str) -> Judgement:
        score = None if verdict is Verdict.JUDGE_ERROR else 0.0
        return Judgement(verdict, [], score, self.isolation, reason[:500], environment=self.environment)

    def worker_pids(self) -> list[int]:
        """None: the workers are processes of other machines."""
        return []

    async def close(self) -> None:
        """Let go of the servers. What is still awaited fails."""
        for link in self._links:
            await link.close()

    async def __aenter__(self) -> AsyncJudgeClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _preference(link: ServerLink) -> tuple[float, float]:
    """Those that need no rest go first, and of them the one with the least to do."""
    return max(link.rests_until - time.monotonic(), 0.0), link.load
