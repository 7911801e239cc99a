"""What handlers need of a request: its whole body, within limits, and to know when its client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from whetstone.judge_service.host import Host
from whetstone.judge_service.refusal import ClientGone, Refused, bad_request, too_busy

DEADLINE_HEADER = "X-Deadline-Seconds"
T = TypeVar("T")


@asynccontextmanager
async def body_of(request: Request, service: Host) -> AsyncGenerator[bytes]:
    """The body, held for as long as the block lasts. Raises Refused, ClientGone."""
    limits = service.limits
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limits.most_body_bytes:
        raise _too_large(limits.most_body_bytes)
    parts, size = list[bytes](), 0
    try:
        while True:
            message = await _next(request, limits.body_silence_s)
            part = message.get("body", b"")
            size += len(part)
            service.held_bytes += len(part)
            parts.append(part)
            if size > limits.most_body_bytes:
                raise _too_large(limits.most_body_bytes)
            if service.held_bytes > limits.most_held_bytes:
                raise too_busy(f"{limits.most_held_bytes >> 20} MiB of requests are held already", 5.0)
            if not message.get("more_body"):
                break
        yield b"".join(parts)
    finally:
        service.held_bytes -= size


async def _next(request: Request, silence_s: float) -> Any:
    try:
        async with asyncio.timeout(silence_s):
            message = await request.receive()
    except TimeoutError:
        raise Refused(408, "slow_body", f"nothing of the body came for {silence_s:g} s") from None
    if message["type"] == "http.disconnect":
        raise ClientGone("the client hung up before its body was whole")
    return message


def _too_large(most: int) -> Refused:
    return Refused(413, "too_large", f"the body is larger than {most >> 20} MiB; send less at once")


def asked_deadline(request: Request, *more: object) -> float | None:
    """The smallest of the deadlines that header and body name; None where there is none. Raises Refused."""
    named = [value for value in (request.headers.get(DEADLINE_HEADER), *more) if value is not None]
    try:
        seconds = [float(value) for value in named if isinstance(value, str | int | float)]
    except ValueError:
        raise bad_request(f"{DEADLINE_HEADER} is {named[0]!r}: expected seconds") from None
    if len(seconds) < len(named) or not all(each > 0 for each in seconds):  # NaN too
        raise bad_request("the deadline is no positive number of seconds")
    return min(seconds, default=None)


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client hangs up. Raises ClientGone.

    The body must have been read.
    """
    working = asyncio.current_task()
    assert working is not None
    watching = asyncio.ensure_future(_cancel_when_gone(request, working))
    try:
        return await work
    except asyncio.CancelledError:
        # Cancelled once, by the watch: else somebody else wants the end of it as well.
        if watching.done() and not watching.cancelled() and working.uncancel() == 0:
            raise ClientGone("the client hung up") from None
        raise
    finally:
        watching.cancel()


async def _cancel_when_gone(request: Request, working: asyncio.Task[Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    working.cancel()
