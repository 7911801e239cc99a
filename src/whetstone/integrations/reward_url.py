"""A reward server for OpenRLHF (``--reward.remote_url``). Needs the extra ``serve``.

It answers a POST of ``{"query": […], "prompts": […], "labels": […]}`` like ``openrlhf.RewardFunction``.
OpenRLHF cannot send custom headers, so the token is part of the URL: ``http://HOST:PORT/?token=…``. A reply
without a verdict gives status 503, after which OpenRLHF retries four times.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from whetstone.core.errors import UserError
from whetstone.core.http.admission import AdmissionLayer, visit_of
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import body_of
from whetstone.core.http.server import listen, server
from whetstone.core.http.service_host import RequestLog
from whetstone.core.http.settings import Address, HostLimits
from whetstone.integrations.openrlhf import RewardFunction
from whetstone.integrations.rewards import NoReward, ScoredReply
from whetstone.service.messages import read_message

_MOST_FIELDS = 100


class _RewardRequest(Struct, frozen=True):
    """OpenRLHF's request: decoded tokens of prompt and reply, the prompts, the problems."""

    query: list[str]
    prompts: list[str]
    labels: list[Any]


class _RewardHost:
    """The server behind the admission layer; see ``whetstone.core.http.service_host.ServiceHost``."""

    def __init__(self, reward: RewardFunction) -> None:
        self.reward, self.telemetry = reward, RequestLog()
        self.limits = HostLimits(most_body_bytes=256 << 20)
        self.draining = False
        self.held_bytes = 0

    def watch(self) -> None:
        """Do nothing: there are no background tasks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of an admitted client, as an ASGI application."""
        visit_of(scope).endpoint = "reward"
        request = Request(scope, receive)
        if request.method != "POST":
            raise RequestRefused(405, "method", "send a POST with `query`, `prompts` and `labels`")
        async with body_of(request, self) as body:
            try:
                # In a thread: a long body would hold up all other requests.
                jobs = await asyncio.to_thread(_read_jobs, body, self.reward)
                result = self.reward.result(await self._scored(jobs))
            except NoReward as error:
                raise RequestRefused(503, "no_reward", str(error)) from None
            except (UserError, ValueError) as error:  # an invalid problem, or lists of different lengths
                raise bad_request(str(error)) from None
        await json_response(result)(scope, receive, send)

    async def _scored(self, jobs: list[tuple[str, Any]]) -> list[ScoredReply]:
        scored = [asyncio.ensure_future(self.reward.rewards.scored(*job)) for job in jobs]
        try:
            return await asyncio.gather(*scored)
        finally:
            for each in scored:
                each.cancel()


def _read_jobs(body: bytes, reward: RewardFunction) -> list[tuple[str, Any]]:
    asked = read_message(body, "application/json", _RewardRequest)
    return [*zip(reward.replies(asked.query, asked.prompts), asked.labels, strict=True)]


def reward_app(reward: RewardFunction, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """Build the application. ``tokens``: accepted tokens; without any, programs of this machine may ask."""
    return _app(_RewardHost(reward), tokens)


def _app(host: _RewardHost, tokens: tuple[str, ...]) -> ASGIApp:
    admission = AdmissionLayer(host, host, tokens)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        token = _token_in_url(scope.get("query_string", b""))
        if token:
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + token)]}
        await admission(scope, receive, send)

    return app


def _token_in_url(query: bytes) -> bytes:
    try:
        fields = parse_qs(query.decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return b""
    return fields.get("token", [""])[-1].encode("latin-1", "replace")


def serve_rewards(address: Address, reward: RewardFunction) -> None:
    """Serve until SIGTERM or SIGINT. Raises UserError for an address that is not available, or needs a
    token."""
    address.check()
    host = _RewardHost(reward)
    with reward.rewards, listen(address) as listening:
        name, port = listening.getsockname()[:2]
        print(f"rewards on http://{name}:{port}/", flush=True)
        asyncio.run(server(_app(host, address.tokens), host).serve([listening]))
