"""One server as a client sees it: requests over connections that are kept, and how it fares."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from whetstone.errors import UserError
from whetstone.judge.workers.wire import pack
from whetstone.judge_service.connection import Answer, Broken
from whetstone.judge_service.connections import Connections
from whetstone.judge_service.look_up import authorization
from whetstone.judge_service.messages import PACKED, Info, JudgeRequest
from whetstone.judge_service.refusal_words import ErrorReply
from whetstone.judge_service.sending import Sent
from whetstone.problem import Program
from whetstone.verdict import Judgement

_LOOK_S = 30.0
_GRACE_S = 30.0
"""How much later than its deadline an answer may come: the server's refusal is on its way."""
_FIRST_REST_S, _LONGEST_REST_S = 0.2, 10.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class AskedInVain(Exception):
    """This server did not judge this time; another one, or another time, may."""


class ServerLink:
    """Requests to one server, on one event loop."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.info: Info | None = None
        self.in_flight = 0
        self.rests_until = 0.0
        """On the monotonic clock: what failed is left alone for a while."""
        self._failures = 0
        self._known: set[str] = set()
        self._sending: dict[str, asyncio.Future[None]] = {}
        self._connections = Connections(url, authorization(token))

    @property
    def load(self) -> float:
        """Programs under way for each of its workers."""
        return self.in_flight / (self.info.workers if self.info else 1)

    async def look(self) -> Info:
        """What it says of itself. Raises AskedInVain, UserError."""
        info: Info = await self._ask("GET", "/v1/info", None, Info, _LOOK_S)
        self.info = info
        return info

    async def judge(
        self, sent: Sent, program: Program | None, options: dict[str, Any], left_s: float
    ) -> Judgement:
        """The judgement, within ``left_s``. Raises AskedInVain, UserError for what is wrong with it."""
        self.in_flight += 1
        try:
            asked = {**options, "deadline_s": left_s}
            if sent.sha256 is None:
                return await self._judge(JudgeRequest(program, sent.problem, None, asked), left_s)
            for _ in range(2):
                await self._have(sent, left_s)
                try:
                    return await self._judge(JudgeRequest(program, None, sent.sha256, asked), left_s)
                except _Unknown:  # it made room for others, or was started anew
                    self._known.discard(sent.sha256)
            raise AskedInVain("the server forgets problems as fast as they are sent: it needs more room")
        finally:
            self.in_flight -= 1

    async def _judge(self, request: JudgeRequest, left_s: float) -> Judgement:
        return await self._ask("POST", "/v1/judge", pack(request), Judgement, left_s)

    async def _have(self, sent: Sent, left_s: float) -> None:
        """See to it that the server has the problem; of many who want that, one sends it."""
        digest = sent.sha256 or ""
        while digest not in self._known:
            if (other := self._sending.get(digest)) is not None:
                await asyncio.wait((other,))
                continue
            self._sending[digest] = done = asyncio.get_running_loop().create_future()
            try:
                await self._ask("PUT", "/v1/problems", sent.data, dict[str, str], left_s)
                self._known.add(digest)
            finally:
                del self._sending[digest]
                done.set_result(None)

    async def _ask(self, method: str, path: str, body: bytes | None, kind: type[Any], left_s: float) -> Any:
        try:
            async with asyncio.timeout(left_s + _GRACE_S):
                answer = await self._connections.ask(method, path, body, PACKED)
        except TimeoutError:
            self._failed(None)
            raise AskedInVain(f"{self.url} did not answer within {left_s + _GRACE_S:.0f} s") from None
        except Broken as broken:
            self._known.clear()  # who knows what comes back
            self.info = None
            self._failed(None)
            raise AskedInVain(f"{self.url}: {broken}") from None
        if answer.status == 200:
            try:
                value = msgspec.json.decode(answer.content, type=kind)
            except msgspec.MsgspecError as error:
                self._failed(None)
                raise AskedInVain(f"{self.url} is no judge of ours: {error}") from None
            self._failures = 0
            return value
        raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> Exception:
        """What an answer that is none means: try again, send the problem, or mend the request."""
        try:
            said = msgspec.json.decode(answer.content, type=ErrorReply).error
            code, message = said.code, said.message
        except msgspec.MsgspecError:
            code, message = "", answer.content[:300].decode(errors="replace")
        if answer.status == 404 and code == "unknown_problem":
            return _Unknown()
        if answer.status in _PASSING or not code:
            retry_after = answer.headers.get("retry-after", "")
            self._failed(float(retry_after) if retry_after.isdigit() else None)
            return AskedInVain(f"{self.url}: {answer.status} {message}")
        if answer.status in (401, 403):
            message = f"{message} (the client's token is WHETSTONE_JUDGE_TOKEN, or token=…)"
        return UserError(f"{self.url}: {message}")

    def is_not_needed(self) -> None:
        """It is another server than it was, or than was asked for."""
        self.info = None
        self.rests_until = time.monotonic() + _LONGEST_REST_S

    def _failed(self, asked_s: float | None) -> None:
        """Leave it alone: for as long as it asks, or the longer the more often it failed in a row."""
        self._failures += 1
        wait = min(_FIRST_REST_S * 2 ** (self._failures - 1), _LONGEST_REST_S)
        self.rests_until = time.monotonic() + (wait if asked_s is None else min(asked_s, _LONGEST_REST_S))

    async def close(self) -> None:
        """Let go of its connections."""
        self._connections.close()


class _Unknown(Exception):
    """The server has no problem of this hash."""
