"""A reward URL: what OpenRLHF posts its queries to (``--reward.remote_url``). Needs the extra ``serve``.

POST of ``{"query": […], "prompts": […], "labels": […]}``, answered as ``openrlhf.CodeReward`` does. OpenRLHF
sends no headers of ours, so the token is in the URL: ``http://HOST:PORT/?token=…``. A reply without a verdict
is a 503, after which OpenRLHF asks four times again.
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

from whetstone.errors import UserError
from whetstone.integrations.openrlhf import CodeReward
from whetstone.integrations.rewards import NoReward
from whetstone.judge_service.serve import listen
from whetstone.judge_service.settings import Address

_MOST_BYTES = 256 << 20


class Queries(Struct, frozen=True):
    """What OpenRLHF sends: decoded tokens of prompt and reply, the prompts, the problems."""

    query: list[str]
    prompts: list[str]
    labels: list[Any]


def reward_app(reward: CodeReward, tokens: tuple[str, ...] = ()) -> Starlette:
    """The application that answers with ``reward`` those who have one of ``tokens`` (none: everybody)."""

    async def answer(request: Request) -> JSONResponse:
        given = request.query_params.get("token", "").encode()
        if tokens and not any(hmac.compare_digest(given, token.encode()) for token in tokens):
            return _refused(401, "no or another token; post to this URL with ?token=TOKEN")
        try:
            queries = msgspec.json.decode(await _body(request), type=Queries)
            replies = reward.replies(queries.query, queries.prompts)
            pairs = zip(replies, queries.labels, strict=True)
            scored = await asyncio.gather(*(reward.rewards.scored(*pair) for pair in pairs))
            return JSONResponse(reward.answer(scored))
        except NoReward as error:
            return _refused(503, str(error))
        except (UserError, ValueError) as error:  # of what is no JSON, and of lists of several lengths
            return _refused(400, str(error))

    return Starlette(routes=[Route("/{anything:path}", answer, methods=["POST"])])


async def _body(request: Request) -> bytes:
    """The body; raises UserError where it is too long, announced or not."""
    parts, size = list[bytes](), 0
    async for part in request.stream():
        parts.append(part)
        if (size := size + len(part)) > _MOST_BYTES:
            raise UserError(f"the body is longer than {_MOST_BYTES >> 20} MiB; send fewer queries at once")
    return b"".join(parts)


def _refused(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)


def serve_rewards(address: Address, reward: CodeReward) -> None:
    """Serve until SIGTERM or SIGINT. Raises UserError for an address that cannot be had, or needs a token."""
    address.check()
    with reward.rewards, listen(address) as listening:
        host, port = listening.getsockname()[:2]
        print(f"rewards on http://{host}:{port}/", flush=True)
        config = uvicorn.Config(
            reward_app(reward, address.tokens), log_level="warning", access_log=False, lifespan="off"
        )
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn drains, then raises the signal once more
            uvicorn.Server(config).run([listening])
