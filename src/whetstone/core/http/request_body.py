"""Tools for handlers: read the body within limits, and notice a client that closes the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from whetstone.core.http.refusal import ClientGone, RequestRefused, bad_request, too_busy
from whetstone.core.http.service_host import ServiceHost

DEADLINE_HEADER = "X-Deadline-Seconds"
T = TypeVar("T")


@asynccontextmanager
async def body_of(request: Request, service: ServiceHost) -> AsyncGenerator[bytes]:
    """Yield the body. It counts as held until the block ends. Raises RequestRefused, ClientGone."""
    limits = service.limits
    content_length = request.headers.get("content-length", "")
    # A declared length is refused at once. The check below is for bodies without one, or with a false one.
    if content_length.isdigit() and int(content_length) > limits.most_body_bytes:
        raise _too_large(limits.most_body_bytes)
    parts, size = list[bytes](), 0
    try:
        while True:
            message = await _next_message(request, limits.body_silence_s)
            part = message.get("body", b"")
            size += len(part)
            # Counted while the parts arrive: many large bodies together must not exhaust the memory.
            service.held_bytes += len(part)
            parts.append(part)
            if size > limits.most_body_bytes:
                raise _too_large(limits.most_body_bytes)
            if service.held_bytes > limits.most_held_bytes:
                raise too_busy(
                    f"the server already holds {limits.most_held_bytes >> 20} MiB of requests", 5.0
                )
            if not message.get("more_body"):
                break
        yield b"".join(parts)
    finally:
        service.held_bytes -= size


async def _next_message(request: Request, silence_s: float) -> Any:
    try:
        async with asyncio.timeout(silence_s):
            message = await request.receive()
    except TimeoutError:
        raise RequestRefused(408, "slow_body", f"no part of the body arrived for {silence_s:g} s") from None
    if message["type"] == "http.disconnect":
        raise ClientGone("the client closed the connection before the end of the body")
    return message


def _too_large(most: int) -> RequestRefused:
    return RequestRefused(413, "too_large", f"the body is larger than {most >> 20} MiB; send less at once")


def requested_deadline(request: Request, *more: object) -> float | None:
    """Return the smallest deadline of header and body; None if there is none. Raises RequestRefused."""
    deadlines = [value for value in (request.headers.get(DEADLINE_HEADER), *more) if value is not None]
    try:
        seconds = [float(value) for value in deadlines if isinstance(value, str | int | float)]
    except ValueError:
        raise bad_request(f"{DEADLINE_HEADER} is {deadlines[0]!r}: expected seconds") from None
    except OverflowError:  # an integer that is too large for a float
        raise bad_request("the deadline is too large for a number of seconds") from None
    if len(seconds) < len(deadlines) or not all(each > 0 for each in seconds):  # also false for NaN
        raise bad_request("the deadline must be a positive number of seconds")
    return min(seconds, default=None)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. It is cancelled when the client closes the connection. Raises
    ClientGone.

    The body must have been read.
    """
    task = asyncio.current_task()
    assert task is not None
    watcher = asyncio.ensure_future(_cancel_on_disconnect(request, task))
    try:
        return await work
    except asyncio.CancelledError:
        # If only the watcher cancelled this task, the client is gone. Otherwise another caller wants to
        # cancel it too.
        if watcher.done() and not watcher.cancelled() and task.uncancel() == 0:
            raise ClientGone("the client closed the connection") from None
        raise
    finally:
        watcher.cancel()


async def _cancel_on_disconnect(request: Request, task: asyncio.Task[Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    task.cancel()
