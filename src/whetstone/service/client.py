"""Clients of judge servers, with the interface of a local judge: ``JudgeClient`` and its async form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement
from whetstone.judge.in_order import BlockingJudge
from whetstone.service.async_client import AsyncJudgeClient
from whetstone.service.connections import HttpResponse
from whetstone.service.messages import Info

__all__ = ["AsyncJudgeClient", "JudgeClient"]

T = TypeVar("T")


class JudgeClient(BlockingJudge):
    """``Judge`` on servers: a context manager, thread-safe. It can be pickled, and used after a fork."""

    def __init__(self, url: str | Sequence[str], **settings: Any) -> None:
        """Take the arguments of ``AsyncJudgeClient``."""
        self._arguments = (url, settings)
        self._client = AsyncJudgeClient(url, **settings)
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.environment = self._client.environment
        super().__init__()

    @property
    def minimum_tier(self) -> str:
        """The weakest accepted isolation of programs."""
        return self._client.minimum_tier

    @property
    def isolation(self) -> str:
        """The weakest tier of the servers."""
        return self._client.isolation

    @property
    def languages(self) -> list[str]:
        """The languages that every server has."""
        return self._client.languages

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return self._client.window

    def use_servers(self, servers: dict[str, Info]) -> None:
        """Use these servers from now on, by their URLs. Programs on other servers are sent again."""
        self._run(self._client.use_servers(servers)).result()

    def server_loads(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of programs in flight and of finished ones, by the URL of the server."""
        return self._client.server_loads()

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Future[Judgement]:
        """Send one program; ``cancel`` on the future also stops a running program. See ``Judge.submit``.

        Errors that only a server finds, such as a missing language, are raised by the future.
        """
        arguments = self._client.prepare(problem, program, options)
        return self._run(self._client.send(*arguments))

    def forward(self, path: str, body: bytes, content_type: str, deadline_s: float) -> Future[HttpResponse]:
        """Send a POST request to a server; ``cancel`` on the future hangs up. See ``AsyncJudgeClient``."""
        return self._run(self._client.forward(path, body, content_type, deadline_s))

    def worker_pids(self) -> list[int]:
        """Return no pids: the workers are on other machines."""
        return []

    def close(self) -> None:
        """Close the connections, and cancel pending judgements."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        # Connections can only be closed on the loop that opened them.
        asyncio.run_coroutine_threadsafe(_cancel_and_close(self._client), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work`` on the event loop of this process. The first call starts the loop."""
        with self._lock:
            if self._closed:
                # Otherwise Python warns that the coroutine was never run.
                work.close()
                raise RuntimeError("this judge is closed")
            # The first program starts the thread, since a client may be forked or pickled before.
            if self._loop is None:
                # A loop in its own thread serves callers of any thread, also those that run a loop
                # themselves.
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="judge-client", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def reset_after_fork(self) -> None:
        """Drop the thread and the connections in a forked process: they belong to the parent."""
        # Another thread of the parent may have held the lock during the fork.
        self._lock, self._loop, self._thread = threading.Lock(), None, None
        # Kept: if it were collected, it would close connections in the parent's event loop, which is shared.
        self._client_of_parent = self._client
        self._client = self._client.with_new_connections()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, self._arguments


def _restore(url: str | Sequence[str], settings: dict[str, Any]) -> JudgeClient:
    return JudgeClient(url, **settings)


async def _cancel_and_close(client: AsyncJudgeClient) -> None:
    """Cancel pending judgements, and close the connections."""
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    await client.close()
