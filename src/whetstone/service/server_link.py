"""A client's link to one server: its connections, its load and its recent failures."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.http.client_addresses import authorization
from whetstone.core.http.error_body import ErrorReply
from whetstone.core.problem import Program
from whetstone.core.verdict import Judgement
from whetstone.judge.workers.wire import pack
from whetstone.service.connections import Broken, Connections, HttpResponse
from whetstone.service.messages import PACKED, Info, JudgeRequest
from whetstone.service.packed_problems import SentProblem

_LOOK_S = 30.0
# A response may arrive this much after the deadline: the server may have sent a refusal.
# Seconds after the deadline in which the server's own refusal may still arrive.
_GRACE_S = 30.0
_FIRST_REST_S, _LONGEST_REST_S = 0.2, 10.0
# Statuses after which a retry may succeed.
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class ServersUnavailable(Exception):
    """The server did not answer this request. Another server or a later attempt may."""


class ServerLost(ServersUnavailable):
    """The connection ended while the server had the program; ``times`` is how often."""

    def __init__(self, why: str, times: int) -> None:
        super().__init__(why)
        self.times = times


class ServerLink:
    """Requests to one server, on one event loop."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.info: Info | None = None
        self.in_flight = self.finished = 0
        self.rests_until = 0.0
        """On the monotonic clock: the server gets no request before, because it failed."""
        self.suspect = asyncio.Lock()
        """Held by a program that lost its servers before: a server has one such program at a time."""
        self._failures = 0
        self._known: set[str] = set()
        self._sending: dict[str, asyncio.Future[None]] = {}
        self._connections = Connections(url, authorization(token))

    @property
    def load(self) -> float:
        """Programs in flight per worker of the server."""
        return self.in_flight / (self.info.workers if self.info else 1)

    async def look(self) -> Info:
        """Ask the server for its description. Raises ServersUnavailable, UserError."""
        try:
            info: Info = await self._ask("GET", "/v1/info", None, Info, _LOOK_S)
        except ServerLost as lost:
            # This request had no program, so no program can be the cause.
            raise ServersUnavailable(str(lost)) from None
        self.info = info
        return info

    async def judge(
        self, sent: SentProblem, program: Program | None, options: dict[str, Any], left_s: float
    ) -> Judgement:
        """Return the judgement, within ``left_s``. Raises ServersUnavailable, UserError."""
        self.in_flight += 1
        try:
            asked = {**options, "deadline_s": left_s}
            if sent.sha256 is None:
                return await self._judge(JudgeRequest(program, sent.problem, None, asked), left_s)
            for _ in range(2):
                await self._have(sent, left_s)
                try:
                    return await self._judge(JudgeRequest(program, None, sent.sha256, asked), left_s)
                except _Unknown:
                    # The server dropped the problem, or was restarted.
                    self._known.discard(sent.sha256)
            raise ServersUnavailable(
                "the server drops problems as fast as they are sent: it needs a larger cache"
            )
        finally:
            self.in_flight -= 1

    async def forward(self, path: str, body: bytes, content_type: str, left_s: float) -> HttpResponse:
        """Return the server's response to a POST request, whatever its status. Raises ServersUnavailable."""
        self.in_flight += 1
        try:
            return await self._response("POST", path, body, content_type, left_s)
        finally:
            self.in_flight -= 1

    async def _judge(self, request: JudgeRequest, left_s: float) -> Judgement:
        judgement: Judgement = await self._ask("POST", "/v1/judge", pack(request), Judgement, left_s)
        self.finished += 1
        return judgement

    async def _have(self, sent: SentProblem, left_s: float) -> None:
        """Make sure that the server has the problem. Of concurrent callers, one sends it."""
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

    async def _response(
        self, method: str, path: str, body: bytes | None, content_type: str, left_s: float
    ) -> HttpResponse:
        """Return the server's response. Raises ServersUnavailable if there is none."""
        try:
            async with asyncio.timeout(left_s + _GRACE_S):
                return await self._connections.ask(method, path, body, content_type)
        except TimeoutError:
            self._failed(None)
            raise ServersUnavailable(f"{self.url} did not answer within {left_s + _GRACE_S:.0f} s") from None
        except Broken as broken:
            # The server may restart without its problems, or as another version.
            self._known.clear()
            self.info = None
            self._failed(None)
            why = f"{self.url}: {broken}"
            raise ServerLost(why, broken.sends) if broken.sends else ServersUnavailable(why) from None

    async def _ask(self, method: str, path: str, body: bytes | None, kind: type[Any], left_s: float) -> Any:
        """Return the decoded answer. Raises ServersUnavailable, UserError."""
        answer = await self._response(method, path, body, PACKED, left_s)
        if answer.status == 200:
            try:
                value = msgspec.json.decode(answer.content, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._failed(None)
                raise ServersUnavailable(f"{self.url} is not a Whetstone judge: {error}") from None
            self._failures = 0
            return value
        raise self._refusal(answer)

    def _refusal(self, answer: HttpResponse) -> Exception:
        """Return the exception for an error response: retry, send the problem, or reject the request."""
        try:
            said = msgspec.json.decode(answer.content, type=ErrorReply).error
            code, message = said.code, said.message
        except (msgspec.MsgspecError, UnicodeDecodeError):
            code, message = "", answer.content[:300].decode(errors="replace")
        if answer.status == 404 and code == "unknown_problem":
            return _Unknown()
        if answer.status in _PASSING or not code:
            retry_after = answer.headers.get("retry-after", "")
            self._failed(float(retry_after) if retry_after.isdigit() else None)
            return ServersUnavailable(f"{self.url}: {answer.status} {message}")
        if answer.status in (401, 403):
            message = f"{message} (the client's token is WHETSTONE_JUDGE_TOKEN, or token=…)"
        return UserError(f"{self.url}: {message}")

    def exclude(self) -> None:
        """Send no request for a while: the server does not meet the requirements."""
        self.info = None
        self.rests_until = time.monotonic() + _LONGEST_REST_S

    def _failed(self, asked_s: float | None) -> None:
        """Send no request for ``asked_s``, or for a time that doubles with each failure in a row."""
        self._failures += 1
        wait = min(_FIRST_REST_S * 2 ** (self._failures - 1), _LONGEST_REST_S)
        self.rests_until = time.monotonic() + (wait if asked_s is None else min(asked_s, _LONGEST_REST_S))

    async def close(self) -> None:
        """Close the connections. Pending requests raise ServerLost."""
        await self._connections.close()


class _Unknown(Exception):
    """The server does not have the problem with this hash."""
