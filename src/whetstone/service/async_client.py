"""``AsyncJudgeClient``: ``AsyncJudge`` on other machines.

A request that fails on the way is sent again, to another server if there are several. If it keeps failing,
the result is JUDGE_ERROR: a failed transport never becomes a verdict on the program.
"""

from __future__ import annotations

import asyncio
import copy
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from whetstone.core.errors import UserError
from whetstone.core.http.client_addresses import server_urls
from whetstone.core.problem import Problem, Program, problem_from
from whetstone.core.verdict import Judgement, Verdict
from whetstone.judge.in_order import Pair, awaited_in_order, check_program, check_tests
from whetstone.judge.options import JudgeOptions, options_with, queued_before
from whetstone.sandbox.job import Tier
from whetstone.service.connections import HttpResponse
from whetstone.service.messages import Info
from whetstone.service.packed_problems import MOST_KEPT_BYTES, PackedProblems, SentProblem
from whetstone.service.server_discovery import ServerRequirements, look_up_servers
from whetstone.service.server_link import ServerLink, ServerLost, ServersUnavailable

T = TypeVar("T")
TOKEN_VARIABLE = "WHETSTONE_JUDGE_TOKEN"
GIVE_UP_S = 300.0
# How long a new client waits for a server that answers.
START_S = 30.0
# The longest deadline that servers accept by default.
_NO_DEADLINE_S = 3600.0
# A program that takes its server down would take down one after the other. After two losses it is a suspect.
# A server has one suspect at a time, so that the next loss shows which one it was. After four losses,
# the program is JUDGE_ERROR.
_SUSPECT_AFTER, _MOST_LOSSES = 2, 4
# Seconds between two tries of a suspect to be the only one at its server.
_SUSPECT_WAIT_S = 0.05
_NO_SERVER_WAIT_S = 0.2


class AsyncJudgeClient:
    """``AsyncJudge`` on servers. Any number of judgements may be pending at once, on one event loop."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | None = None,
        minimum_tier: str = "restricted",
        environment: str = "",
        give_up_s: float = GIVE_UP_S,
        most_kept_bytes: int = MOST_KEPT_BYTES,
        **options: Any,
    ) -> None:
        """Look up the servers at ``url``, one or several. This blocks the event loop.

        token: the token for the servers; None: WHETSTONE_JUDGE_TOKEN of the environment, if set.
        minimum_tier: the weakest accepted isolation. environment: the name of the packages that the servers
            must offer to programs; empty for any, as long as all servers have the same.
        give_up_s: when all requests have failed for this long, they become JUDGE_ERROR. So does a program
            whose ``deadline_s`` has passed, and one whose server was lost four times.
        most_kept_bytes: the packed problems that are kept, so that each is packed once.
        options: how programs are judged; see ``JudgeOptions``.

        Raises UserError if no server answers or one does not meet the requirements, SandboxUnavailable for
        too weak an isolation, TypeError for an unknown option.
        """
        options_with(JudgeOptions(), options)
        self._options = options
        self._urls = server_urls(url)
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
        self._requirements = ServerRequirements(minimum_tier, environment)
        self._give_up_s = give_up_s
        self._most_kept_bytes = most_kept_bytes
        self._packed = PackedProblems(most_kept_bytes)
        self._failing_since: float | None = None
        self._infos = look_up_servers(self._urls, self._token, self._requirements, min(give_up_s, START_S))
        self.environment = next(info.environment for info in self._infos.values())
        """The packages that Python code may import, as judgements name them."""
        self._links = [ServerLink(url, self._token) for url in self._urls]

    @property
    def isolation(self) -> str:
        """The weakest tier of the servers."""
        tiers = (info.isolation for info in list(self._infos.values()))
        return min(tiers, key=lambda label: Tier[label.upper()])

    @property
    def minimum_tier(self) -> str:
        """The weakest accepted isolation of programs."""
        return self._requirements.minimum_tier

    @property
    def languages(self) -> list[str]:
        """The languages that every server has."""
        first, *others = list(self._infos.values())
        return [name for name in first.languages if all(name in info.languages for info in others)]

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return sum(info.window for info in list(self._infos.values()))

    async def use_servers(self, servers: dict[str, Info]) -> None:
        """Use these servers from now on, by their URLs. Programs on other servers are sent again."""
        # Without any, `isolation` and `window` keep their last values.
        if servers:
            self._infos = servers
        removed = [link for link in self._links if link.url not in servers]
        kept = {link.url for link in self._links} & servers.keys()
        self._links = [link for link in self._links if link.url in kept]
        self._links += [ServerLink(url, self._token) for url in servers if url not in kept]
        self._urls = list(servers)
        # Only now: programs of a closed link look for another server in the new list.
        for link in removed:
            await link.close()

    def server_loads(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of programs in flight and of finished ones, by the URL of the server."""
        return {link.url: (link.in_flight, link.finished) for link in list(self._links)}

    def with_new_connections(self) -> AsyncJudgeClient:
        """Return a copy with its own connections, for another event loop or process."""
        other = copy.copy(self)
        other._packed, other._failing_since = PackedProblems(self._most_kept_bytes), None
        # Connections belong to the event loop and the process that opened them.
        other._links = [ServerLink(url, self._token) for url in self._urls]
        return other

    async def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Judgement:
        """Judge one program; see ``Judge.submit``. Cancelling the await stops the program."""
        return await self.send(*self.prepare(problem, program, options))

    def judge_many(self, pairs: Iterable[Pair], **options: Any) -> AsyncIterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""

        def submit(
            problem: Problem | dict[str, Any], program: Program | None, **options: Any
        ) -> asyncio.Task[Judgement]:
            return asyncio.ensure_future(self.judge(problem, program, **options))

        return awaited_in_order(submit, pairs, self.window, options)

    def prepare(
        self, problem: Problem | dict[str, Any], program: Program | None, options: dict[str, Any]
    ) -> tuple[SentProblem, Program | None, dict[str, Any]]:
        """Return the arguments of ``send``. Raises UserError and TypeError as ``Judge.submit`` does."""
        problem = problem_from(problem)
        check_program(program)
        check_tests(problem)
        all_options = {**self._options, **options}
        options_with(JudgeOptions(), all_options)
        return self._packed(problem), program, all_options

    async def send(self, sent: SentProblem, program: Program | None, options: dict[str, Any]) -> Judgement:
        """Return the judgement on ``prepared`` arguments. Raises UserError if a server rejects them."""
        if program is None or not program.source.strip():
            return self._judgement_without_cases(Verdict.NO_CODE, "there is no program")
        began = time.monotonic()

        def judge(link: ServerLink, left_s: float) -> Awaitable[Judgement]:
            queued_s = queued_before(options) + time.monotonic() - began
            return link.judge(sent, program, {**options, "queued_s": queued_s}, left_s)

        try:
            return await self._on_a_server(judge, options.get("deadline_s"))
        except ServersUnavailable as failure:
            return self._judgement_without_cases(Verdict.JUDGE_ERROR, f"not judged: {failure}")

    async def forward(self, path: str, body: bytes, content_type: str, deadline_s: float) -> HttpResponse:
        """Return a server's response to a POST request. Raises ServersUnavailable.

        The request may be sent several times, so it must have no lasting effect.
        """
        return await self._on_a_server(
            lambda link, left_s: link.forward(path, body, content_type, left_s), deadline_s
        )

    async def _on_a_server(
        self, request: Callable[[ServerLink, float], Awaitable[T]], deadline_s: float | None
    ) -> T:
        """Return the answer to ``request(link, seconds left)`` of the least loaded server, with retries.

        Raises ServersUnavailable when it gives up, UserError if a server rejects the request.
        """
        deadline = math.inf if deadline_s is None else time.monotonic() + deadline_s
        losses = 0
        while True:
            left_s = min(deadline - time.monotonic(), _NO_DEADLINE_S)
            if left_s <= 0:
                raise ServersUnavailable("its deadline passed")
            suspect = losses >= _SUSPECT_AFTER
            link = min(
                self._links, key=lambda each: (_wait_s(each, suspect=suspect), each.load), default=None
            )
            wait_s = _NO_SERVER_WAIT_S if link is None else _wait_s(link, suspect=suspect)
            if link is None and self._should_give_up():
                raise ServersUnavailable("there is no server")
            if link is None or wait_s > 0:
                # At random, so that many waiting programs do not reach the server at the same moment.
                await asyncio.sleep(min(wait_s * random.uniform(1.0, 1.5), left_s))
                continue
            try:
                async with link.suspect if suspect else nullcontext():
                    await self._check_server(link)
                    answer = await request(link, left_s)
            except ServerLost as lost:
                # A loss of a server counts against the program. Other failures do not: the program was not
                # running.
                losses += lost.times
                if losses >= _MOST_LOSSES or self._should_give_up():
                    why = f"{losses} servers were lost while they judged it: {lost}"
                    raise ServersUnavailable(why) from None
            except ServersUnavailable as failure:
                if self._should_give_up():
                    raise ServersUnavailable(f"no server judged it: {failure}") from None
            else:
                self._failing_since = None
                return answer

    async def _check_server(self, link: ServerLink) -> None:
        """Check that a server meets the requirements, at first use and after each failure."""
        if link.info is None:
            info = await link.look()
            try:
                self._requirements.check(link.url, info, self.environment)
            except UserError as error:
                # A restarted server may have other packages, which could change verdicts.
                link.exclude()
                raise ServersUnavailable(str(error)) from None
            self._infos = {**self._infos, link.url: info}

    def _should_give_up(self) -> bool:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since >= self._give_up_s

    def _judgement_without_cases(self, verdict: Verdict, reason: str) -> Judgement:
        # Without a verdict there is no score. A missing program is the model's own failure.
        score = None if verdict is Verdict.JUDGE_ERROR else 0.0
        return Judgement(verdict, [], score, self.isolation, reason[:500], environment=self.environment)

    def worker_pids(self) -> list[int]:
        """Return an empty list: the workers are processes of other machines."""
        return []

    async def close(self) -> None:
        """Close the connections. Pending requests fail."""
        for link in self._links:
            await link.close()

    async def __aenter__(self) -> AsyncJudgeClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _wait_s(link: ServerLink, *, suspect: bool) -> float:
    """Return the seconds until the server may get a program. A suspect also waits for another suspect."""
    rest_s = max(link.rests_until - time.monotonic(), 0.0)
    return max(rest_s, _SUSPECT_WAIT_S) if suspect and link.suspect.locked() else rest_s
