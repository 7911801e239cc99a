"""A reward server for OpenRLHF (``--reward.remote_url``). Needs the extra ``serve``.

It answers a POST of ``{"query": […], "prompts": […], "labels": […]}`` like ``openrlhf.RewardFunction``.
OpenRLHF cannot send custom headers, so the token is part of the URL: ``http://HOST:PORT/?token=…``. A reply
without a verdict gives status 503, after which OpenRLHF retries four times.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from typing import Any

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from whetstone.core.errors import UserError
from whetstone.core.http.server import listen
from whetstone.core.http.settings import Address
from whetstone.integrations.openrlhf import RewardFunction
from whetstone.integrations.rewards import NoReward

_MOST_BYTES = 256 << 20


class _RewardRequest(Struct, frozen=True):
    """OpenRLHF's request: decoded tokens of prompt and reply, the prompts, the problems."""

    query: list[str]
    prompts: list[str]
    labels: list[Any]


def reward_app(reward: RewardFunction, tokens: tuple[str, ...] = ()) -> Starlette:
    """Build the application. ``tokens``: accepted tokens; without any, every client is accepted."""

    async def answer(request: Request) -> JSONResponse:
        given = request.query_params.get("token", "").encode()
        if tokens and not any(hmac.compare_digest(given, token.encode()) for token in tokens):
            return _refused(401, "missing or wrong token; post to this URL with ?token=TOKEN")
        try:
            queries = msgspec.json.decode(await _body(request), type=_RewardRequest)
            replies = reward.replies(queries.query, queries.prompts)
            pairs = zip(replies, queries.labels, strict=True)
            scored = await asyncio.gather(*(reward.rewards.scored(*pair) for pair in pairs))
            return JSONResponse(reward.result(scored))
        except NoReward as error:
            return _refused(503, str(error))
        except (UserError, ValueError) as error:  # invalid JSON, or lists of different lengths
            return _refused(400, str(error))

    return Starlette(routes=[Route("/{anything:path}", answer, methods=["POST"])])


async def _body(request: Request) -> bytes:
    """Return the body. Raises UserError if it is too long, with or without a Content-Length."""
    parts, size = list[bytes](), 0
    async for part in request.stream():
        parts.append(part)
        if (size := size + len(part)) > _MOST_BYTES:
            raise UserError(f"the body is longer than {_MOST_BYTES >> 20} MiB; send fewer queries at once")
    return b"".join(parts)


def _refused(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)


def serve_rewards(address: Address, reward: RewardFunction) -> None:
    """Serve until SIGTERM or SIGINT. Raises UserError for an address that is not available, or needs a
    token."""
    address.check()
    with reward.rewards, listen(address) as listening:
        host, port = listening.getsockname()[:2]
        print(f"rewards on http://{host}:{port}/", flush=True)
        config = uvicorn.Config(
            reward_app(reward, address.tokens), log_level="warning", access_log=False, lifespan="off"
        )
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn drains, then raises the signal once more
            uvicorn.Server(config).run([listening])
