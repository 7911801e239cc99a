"""A client for a flow on another machine. It implements ``LeaseService`` and ``BatchService``.

Failed requests are retried, which is safe because every call can be repeated.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from whetstone.core.errors import UserError
from whetstone.core.http.client_addresses import authorization, server_urls
from whetstone.core.http.error_body import ErrorReply
from whetstone.rollout.flow_rules import FlowRefusal
from whetstone.rollout.identity import Identity
from whetstone.rollout.protocol import (
    BatchPending,
    BatchResponse,
    DeliveryRequest,
    LeaseRequest,
    LeaseResponse,
    LeasesReturned,
    TrainerRequest,
)
from whetstone.rollout.scheduler import Delivery
from whetstone.rollout.service import wire
from whetstone.rollout.state import Offer

TOKEN_VARIABLE = "WHETSTONE_FLOW_TOKEN"
# Seconds for which a flow is retried after it was reached once, and before it was ever reached.
GIVE_UP_S, FIRST_CONTACT_S = 600.0, 120.0
_CONNECT_S = 10.0
# Shorter failures, such as a restart of the flow, are not worth a line in the log.
_LOG_AFTER_S = 5.0
# Seconds that a flow may need to answer, in addition to the requested wait.
_ANSWER_MARGIN_S = 60.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0
_RETRYABLE_STATUS = frozenset({408, 429, 500, 502, 503, 504, 507})
_MOST_DELIVERED_BYTES = 32 << 20
T = TypeVar("T")


class _RetryableError(Exception):
    """A request failed and may succeed later. ``from_flow``: the flow itself reported the failure."""

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.from_flow = answered


class FlowClient:
    """Requests to one flow, on one event loop.

    Every call raises UserError if the flow did not answer for ``give_up_s`` (``FIRST_CONTACT_S`` if it never
    has) or belongs to another run, and FlowRefusal if the flow refuses the request.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        token: str | None = None,
        give_up_s: float = GIVE_UP_S,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """token: None: WHETSTONE_FLOW_TOKEN of the environment, if set. log: called for long waits."""
        [self.url] = server_urls(url, of="a flow", port=8090)
        self._identity, self._give_up_s, self._log = identity, give_up_s, log
        self._connected = False
        self._waiting_paths: set[str] = set()
        token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
        self._client = httpx2.AsyncClient(
            headers={**authorization(token), wire.RUN_HEADER: identity.digest},
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            # Proxy variables of the environment are not meant for the connections between roles.
            trust_env=False,
        )

    async def hello(self) -> None:
        """Wait for the flow of this run. Raises UserError if the flow belongs to another run."""
        await self._request("/v1/hello", self._identity, wire.Acknowledgement)

    async def take(self, request: LeaseRequest) -> LeaseResponse:
        """See LeaseService."""
        return await self._request("/v1/take", request, LeaseResponse, request.wait_s)

    async def deliver(self, request: DeliveryRequest) -> list[str]:
        """See LeaseService."""
        receipts: list[str] = []
        for some in _portions(request.deliveries):
            body = wire.frame(wire.encode(replace(request, deliveries=some)))
            answer = await self._request_bytes("/v1/deliver", body, wire.FRAME, 0.0)
            receipts += self._read(answer, wire.DeliveryReceipts).receipts
        return receipts

    async def give_back(self, returned: LeasesReturned) -> None:
        """See LeaseService."""
        await self._request("/v1/give_back", returned, wire.Acknowledgement)

    async def batch(self, request: TrainerRequest) -> BatchResponse | BatchPending:
        """See BatchService."""
        answer = await self._request_bytes("/v1/batch", wire.encode(request), wire.PACKED, request.wait_s)
        try:
            return wire.read_batch(answer)
        except wire.MessageError as error:
            raise self._invalid_answer(error) from None

    async def publish(self, model: str, offer: Offer) -> None:
        """See BatchService."""
        await self._request("/v1/publish", wire.PublishRequest(model, offer), wire.Acknowledgement)

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """See BatchService."""
        await self._request(
            "/v1/resume", wire.ResumeRequest(model, version, drawn, list(unused)), wire.Acknowledgement
        )

    async def status(self, *, single_attempt: bool = False) -> dict[str, Any]:
        """Return the status of all roles; see ``status.status_of``. ``single_attempt``: do not retry."""
        try:
            send = self._attempt if single_attempt else self._request_bytes
            answer = await send("/v1/status", None, "", 0.0)
        except _RetryableError as error:
            raise UserError(str(error)) from None
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise self._invalid_answer(error) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    # -- internal

    async def _request(self, path: str, message: Struct, kind: type[T], wait_s: float = 0.0) -> T:
        return self._read(await self._request_bytes(path, wire.encode(message), wire.PACKED, wait_s), kind)

    def _read(self, answer: bytes, kind: type[T]) -> T:
        try:
            return wire.decode(answer, kind)
        except wire.MessageError as error:
            raise self._invalid_answer(error) from None

    def _invalid_answer(self, error: Exception) -> UserError:
        return UserError(f"{self.url} sent an invalid answer; is it a flow of this version? {error}")

    async def _request_bytes(self, path: str, body: bytes | None, kind: str, wait_s: float) -> bytes:
        """Send a request until there is an answer."""
        start, delay = time.monotonic(), _FIRST_DELAY_S
        while True:
            try:
                answer = await self._attempt(path, body, kind, wait_s)
            except _RetryableError as error:
                self._connected = self._connected or error.from_flow
                waited = time.monotonic() - start
                patience = self._give_up_s if self._connected else min(FIRST_CONTACT_S, self._give_up_s)
                if waited > patience:
                    raise UserError(self._timeout_message(error, waited)) from None
                if waited > _LOG_AFTER_S and path not in self._waiting_paths:
                    self._waiting_paths.add(path)
                    self._log(f"waiting for the flow at {self.url}, for {patience:.0f} s at most: {error}")
            else:
                self._connected = True
                if path in self._waiting_paths:
                    self._waiting_paths.remove(path)
                    if not self._waiting_paths:
                        self._log(f"the flow at {self.url} answers")
                return answer
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY_S)

    def _timeout_message(self, error: _RetryableError, waited: float) -> str:
        if error.from_flow:
            return f"the flow at {self.url} failed for {waited:.0f} s: {error}"
        return (
            f"no flow answered at {self.url} for {waited:.0f} s ({error}); start it there with `whetstone "
            "role flow`, or give another address (--flow)"
        )

    async def _attempt(self, path: str, body: bytes | None, kind: str, wait_s: float) -> bytes:
        try:
            async with asyncio.timeout(wait_s + _ANSWER_MARGIN_S):
                answer = await self._client.request(
                    "GET" if body is None else "POST",
                    self.url + path,
                    content=body,
                    headers={"Content-Type": kind} if body is not None else None,
                )
        except TimeoutError:
            raise _RetryableError(f"no answer within {wait_s + _ANSWER_MARGIN_S:.0f} s") from None
        except httpx2.RequestError as error:  # also a body that is not in the encoding it claims
            raise _RetryableError(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        if answer.status_code == 200:
            return answer.content
        try:
            refused = msgspec.json.decode(answer.content, type=ErrorReply).error
            code, message = refused.code, refused.message
        except (ValueError, RecursionError):
            raise _RetryableError(f"{answer.status_code} {answer.text[:200]}") from None
        if answer.status_code in _RETRYABLE_STATUS:
            raise _RetryableError(f"{answer.status_code} {message}", answered=True)
        if code == "identity" and path != "/v1/hello":
            # This raises an error that states the difference of the runs.
            await self.hello()
        if answer.status_code in (401, 403):
            summary = message.partition(";")[0]
            message = f"{summary}; set {TOKEN_VARIABLE} to the token that the flow was started with"
        raise FlowRefusal(code, f"{self.url}: {message}")


def _portions(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Split deliveries so that each body stays small; a single delivery may exceed the limit."""
    portions: list[list[Delivery]] = []
    size = 0
    for each in deliveries:
        its = sum(len(data) for _, data in each.groups.values())
        # The server limits the size of a body.
        if not portions or size + its > _MOST_DELIVERED_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(each)
        size += its
    return portions


def wait_for_flow(url: str, log: Callable[[str], None]) -> None:
    """Wait until a flow answers at ``url``. ``log`` is called for long waits.

    Raises UserError if no flow answers or the token is wrong. ``FlowClient.hello`` checks later, when the
    problems are read, that the flow belongs to this run.
    """
    asyncio.run(_wait(url, log))


async def _wait(url: str, log: Callable[[str], None]) -> None:
    client = FlowClient(url, Identity({}), log=log)
    try:
        await client.status()
    finally:
        await client.close()
