"""A flow on another machine, with the interface of one in this process: ``ForReplicas`` and ``ForTrainers``.

What fails on the way is tried again, which is safe: every call can be repeated.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import httpx2
import msgspec

from whetstone.errors import UserError
from whetstone.flow.books import Offer
from whetstone.flow.desk import Delivery
from whetstone.flow.exchange import Ask, Made, News, Waiting, Wish
from whetstone.flow.identity import Identity
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.service import wire
from whetstone.judge_service.look_up import authorization, server_urls
from whetstone.judge_service.refusal_words import ErrorReply

TOKEN_VARIABLE = "WHETSTONE_FLOW_TOKEN"
GIVE_UP_S, NEVER_THERE_S = 600.0, 120.0
"""For so long a flow is asked again that was there once, and one that never was."""
_CONNECT_S = 10.0
_SAID_AFTER_S = 5.0
_ANSWER_S = 60.0
"""So much longer than it was asked to wait may a flow take for its answer."""
_FIRST_REST_S, _LONGEST_REST_S = 0.1, 5.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504, 507})
_MOST_DELIVERED_BYTES = 32 << 20
T = TypeVar("T")


class _Again(Exception):
    """It was in vain this time. ``answered``: the flow said so itself."""

    def __init__(self, why: str, *, answered: bool = False) -> None:
        super().__init__(why)
        self.answered = answered


class FlowClient:
    """Requests to one flow, on one event loop.

    Every call raises UserError when the flow did not answer for ``give_up_s`` (``NEVER_THERE_S`` where it
    never has), or is not this run's, and FlowRefusal for what it never will do.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        token: str | None = None,
        give_up_s: float = GIVE_UP_S,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """token: None: WHETSTONE_FLOW_TOKEN of the environment, if there is one. say: told of long waits."""
        [self.url] = server_urls(url, of="a flow", port=8090)
        self._identity, self._give_up_s, self._say = identity, give_up_s, say
        self._met = False
        self._waits: set[str] = set()
        token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
        self._client = httpx2.AsyncClient(
            headers={**authorization(token), wire.RUN_HEADER: identity.digest},
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            trust_env=False,
        )

    async def hello(self) -> None:
        """Wait for a flow that is this run's. Raises UserError where it is another's."""
        await self._ask("/v1/hello", self._identity, wire.Done)

    async def take(self, ask: Ask) -> News:
        """See ForReplicas."""
        return await self._ask("/v1/take", ask, News, ask.wait_s)

    async def deliver(self, replica: str, deliveries: Sequence[Delivery], incarnation: str = "") -> list[str]:
        """See ForReplicas."""
        receipts: list[str] = []
        for some in _portions(deliveries):
            body = wire.delivery_frame(replica, some, incarnation)
            answer = await self._ask_bytes("/v1/deliver", body, wire.FRAME, 0.0)
            receipts += self._read(answer, wire.Receipts).receipts
        return receipts

    async def give_back(
        self, replica: str, serials: Sequence[int], why: str, *, leaves: bool, incarnation: str = ""
    ) -> None:
        """See ForReplicas."""
        message = wire.GivenBack(replica, list(serials), why, leaves, incarnation)
        await self._ask("/v1/give_back", message, wire.Done)

    async def batch(self, wish: Wish) -> Made | Waiting:
        """See ForTrainers."""
        answer = await self._ask_bytes("/v1/batch", msgspec.msgpack.encode(wish), wire.PACKED, wish.wait_s)
        try:
            found = wire.read_batch(answer)
        except wire.Garbled as error:
            raise UserError(f"{self.url} is no flow of ours: {error}") from None
        return Waiting(found) if isinstance(found, str) else found

    async def publish(self, model: str, offer: Offer) -> None:
        """See ForTrainers."""
        await self._ask("/v1/publish", wire.Publishes(model, offer), wire.Done)

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """See ForTrainers."""
        await self._ask("/v1/resume", wire.Resumes(model, version, drawn, list(unused)), wire.Done)

    async def status(self, *, at_once: bool = False) -> dict[str, Any]:
        """What everybody in the dataflow does; see ``flow.status``. ``at_once``: it is asked once alone."""
        try:
            once = self._once if at_once else self._ask_bytes
            answer = await once("/v1/status", None, "", 0.0)
        except _Again as error:
            raise UserError(str(error)) from None
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    # -- within

    async def _ask(self, path: str, message: Any, kind: type[T], wait_s: float = 0.0) -> T:
        body = msgspec.msgpack.encode(message)
        return self._read(await self._ask_bytes(path, body, wire.PACKED, wait_s), kind)

    def _read(self, answer: bytes, kind: type[T]) -> T:
        try:
            return wire.decoded(answer, kind)
        except wire.Garbled as error:
            raise UserError(f"{self.url} is no flow of ours: {error}") from None

    async def _ask_bytes(self, path: str, body: bytes | None, kind: str, wait_s: float) -> bytes:
        """Ask until there is an answer."""
        began, rest = time.monotonic(), _FIRST_REST_S
        while True:
            try:
                answer = await self._once(path, body, kind, wait_s)
            except _Again as error:
                self._met = self._met or error.answered
                waited = time.monotonic() - began
                patience = self._give_up_s if self._met else min(NEVER_THERE_S, self._give_up_s)
                if waited > patience:
                    raise UserError(self._given_up(error, waited)) from None
                if waited > _SAID_AFTER_S and path not in self._waits:
                    self._waits.add(path)
                    self._say(f"waiting for the flow at {self.url}, for {patience:.0f} s at most: {error}")
            else:
                self._met = True
                if path in self._waits:
                    self._waits.remove(path)
                    if not self._waits:
                        self._say(f"the flow at {self.url} answers")
                return answer
            await asyncio.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST_S)

    def _given_up(self, error: _Again, waited: float) -> str:
        if error.answered:
            return f"the flow at {self.url} could not do it for {waited:.0f} s: {error}"
        return (
            f"no flow answered at {self.url} for {waited:.0f} s ({error}); start it there with `whetstone "
            "role flow`, or give another address (--flow)"
        )

    async def _once(self, path: str, body: bytes | None, kind: str, wait_s: float) -> bytes:
        try:
            async with asyncio.timeout(wait_s + _ANSWER_S):
                answer = await self._client.request(
                    "GET" if body is None else "POST",
                    self.url + path,
                    content=body,
                    headers={"Content-Type": kind} if body is not None else None,
                )
        except TimeoutError:
            raise _Again(f"no answer within {wait_s + _ANSWER_S:.0f} s") from None
        except httpx2.TransportError as error:
            raise _Again(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        if answer.status_code == 200:
            return answer.content
        try:
            refused = msgspec.json.decode(answer.content, type=ErrorReply).error
            code, message = refused.code, refused.message
        except msgspec.MsgspecError:
            raise _Again(f"{answer.status_code} {answer.text[:200]}") from None
        if answer.status_code in _PASSING:
            raise _Again(f"{answer.status_code} {message}", answered=True)
        if code == "identity" and path != "/v1/hello":
            await self.hello()  # which says in which way
        if answer.status_code in (401, 403):
            why = message.partition(";")[0]
            message = f"{why}; set {TOKEN_VARIABLE} to the token that the flow was started with"
        raise FlowRefusal(code, f"{self.url}: {message}")


def _portions(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Few enough at once for one body; one alone may be longer."""
    portions: list[list[Delivery]] = []
    size = 0
    for each in deliveries:
        its = sum(len(data) for _, data in each.groups.values())
        if not portions or size + its > _MOST_DELIVERED_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(each)
        size += its
    return portions
