"""An engine that is a server of its own.

Weights are never changed within a request: for an update the server ends what it is writing, and each reply
goes on under the new weights from the tokens that it has. So every token's version is known, and nothing
cached under old weights is read under new ones; the price is that the replies in flight are read once more.

Asleep it has lost its weights: whoever wakes it hands over what the trainer has, or had last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2

from whetstone.engine.engine import Capabilities, Completion, GenerationRequest
from whetstone.engine.memory import return_device_memory
from whetstone.engine.remote.connection import Connection, Manners, RequestFailed
from whetstone.engine.remote.server import Server, headers
from whetstone.engine.served.dialect import Dialect, Drawn, Facts
from whetstone.engine.served.handover import Handover
from whetstone.engine.served.process import ServerProcess
from whetstone.engine.stopping import StopRule
from whetstone.errors import UserError
from whetstone.sample import FinishReason

_LET_GO_S = 10.0
"""After a pause, for answers that are on their way; what has not come then is asked for again."""

_AGAIN_S = 0.5
"""Then the server is told once more: a request may have come in after the pause, and wait for its end."""

_LOST_AFTER = 8
"""Requests that failed in a row, each after all its tries: the server is gone."""

_CONNECT_S = 30.0


class ServedEngine:
    """An Engine that speaks ``dialect`` to the server at ``url`` (its root).

    handover: holds the run's first weights. loaded: whether the server has these already; else it gets them
    before its first reply. process: the server itself, where it is ours. seeds: whether requests carry seeds.
    Raises UserError for a server that cannot serve a run.
    """

    def __init__(
        self,
        dialect: Dialect,
        url: str,
        tokenizer: Any,
        handover: Handover,
        *,
        loaded: bool,
        process: ServerProcess | None = None,
        seeds: bool = True,
        manners: Manners,
    ) -> None:
        self.capabilities = Capabilities(
            repeatable_streams=False,
            weights=frozenset({"tensors", "folder"}),
            full_logprobs=dialect.full_logprobs,
            every_rank=False,
        )
        self._dialect = dialect
        self._server = Server(url=url, model="", owner=dialect.name)
        self._tokenizer = tokenizer
        self._handover = handover
        self._process = process
        self._seeds = seeds
        self._manners = manners
        self._version = 0
        facts = _looked(dialect, self._server, manners)
        _check_dtype(facts.dtype, handover.dtype, self._server.url)
        self._context = facts.context
        self._loaded = loaded
        self._asleep = False
        self._link: tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient, Connection] | None = None
        self._serving = asyncio.Event()
        self._updating = asyncio.Lock()
        self._asking: set[asyncio.Task[Drawn]] = set()
        self._failed = 0
        self._broken: str | None = None
        self.pause_s = 0.0
        """For how long the last new weights kept the server from generating."""
        if loaded:
            self._serving.set()

    @property
    def version(self) -> int:
        """The version of the weights in use; 0 until the first update."""
        return self._version

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        prompt, wanted = len(request.prompt_ids), request.params.max_tokens
        if prompt == 0:
            raise UserError("the prompt is empty; give at least one token, such as the tokenizer's bos token")
        if request.n < 1:
            raise UserError(f"n is {request.n}; ask for at least one reply")
        if self._context is not None and prompt + wanted > self._context:
            raise UserError(
                f"a prompt of {prompt} tokens and up to {wanted} new ones exceed the server's context of "
                f"{self._context}; lower max_tokens, or start it with a longer one"
            )

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Ask for the replies now, and yield each as it ends. Call it inside an event loop.

        Leaving the iterator early cancels what is left. A reply that could not be had ends with ``abort``.
        Raises UserError as ``check`` does, and when the server is gone.
        """
        self._raise_if_broken()
        self.check(request)
        loop = asyncio.get_running_loop()
        return _each([loop.create_task(self._reply(request, index)) for index in range(request.n)])

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """See Engine. Replies in flight are read again under the new weights and go on.

        Raises ValueError for weights that do not fit, with nothing changed. A server that fails to read them
        is not used again, since nobody knows what it holds: UserError, now and from then on.
        """
        self._raise_if_broken()
        async with self._updating:
            if isinstance(weights, Path):
                await self._load(weights, version)
            else:
                # Not on a thread: the tensors may be a model's that torch computes with on this one.
                self._handover.take(weights)
                if self._asleep:
                    return_device_memory()  # the server is about to take what the trainer needs no more
                await self._hand_over(version)

    async def sleep(self) -> None:
        """See Sleeper. What is asked for meanwhile wakes the server, with the weights that it had."""
        self._raise_if_broken()
        async with self._updating:
            if self._asleep:
                return
            server = self._connection()
            self._serving.clear()
            self._loaded = False
            try:
                await self._silence(server)
                await self._dialect.sleep(server)
            except RequestFailed as error:
                self._broken = f"{self._server.url}: the server did not fall asleep: {error}"
                self._serving.set()
                raise UserError(self._broken) from None
            self._asleep = True

    async def close(self) -> None:
        """End the server if it is ours; replies in flight end with ``abort``. A second call does nothing."""
        if self._broken is None:
            self._broken = "the engine is closed"
        for task in list(self._asking):
            task.cancel()
        self._serving.set()
        if self._link is not None:
            await self._link[1].aclose()
            self._link = None
        if self._process is not None:
            self._process.close()
            self._process = None
        self._handover.close()

    async def _reply(self, request: GenerationRequest, index: int) -> Completion:
        reply = _Reply(index, StopRule(self._tokenizer, frozenset(), request.params))
        seed = (request.seed * 1_000_003 + index) % 2**31 if self._seeds else None
        while True:
            await self._first_weights()
            await self._serving.wait()
            version = self._version
            if self._broken is not None:
                return reply.completion("abort")
            left = request.params.max_tokens - len(reply.token_ids)
            ids = [*request.prompt_ids, *reply.token_ids]
            # Another stream for what follows: the same seed would draw the same numbers again.
            own = None if seed is None else (seed + len(reply.token_ids)) % 2**31
            body = self._dialect.request(ids, request.params, left, own)
            try:
                drawn = await self._asked(body)
            except RequestFailed as error:
                self._count_failure(error)
                return reply.completion("abort")
            ended = reply.add(drawn, version, left)
            if ended is not None:
                return reply.completion(ended)
            if version == self._version and self._serving.is_set() and not drawn.token_ids:
                self._count_failure(RequestFailed("it ended a reply without a token"))
                return reply.completion("abort")

    async def _asked(self, body: dict[str, Any]) -> Drawn:
        """What one request brought; nothing, ended by ``abort``, where an update could not wait for it."""
        ask = asyncio.ensure_future(self._connection().post(self._dialect.path, body, self._dialect.drawn))
        self._asking.add(ask)
        try:
            drawn = await ask
            self._failed = 0
            return drawn
        except asyncio.CancelledError:
            if ask.cancelled() and not _cancelling():
                return Drawn([], [], "abort")
            ask.cancel()
            raise
        finally:
            self._asking.discard(ask)

    async def _first_weights(self) -> None:
        if self._loaded:
            return
        async with self._updating:
            if not self._loaded:
                await self._hand_over(self._version)

    async def _hand_over(self, version: int) -> None:
        """Have the server read what the handover has. It is written beside all else that happens here."""
        with ExitStack() as held:
            written = asyncio.ensure_future(asyncio.to_thread(held.enter_context, self._handover.now()))
            try:
                folder = await asyncio.shield(written)
            except asyncio.CancelledError:
                await asyncio.wait([written])
                raise
            await self._load(folder, version)

    async def _load(self, folder: Path, version: int) -> None:
        server = self._connection()
        self._serving.clear()
        began = time.perf_counter()
        try:
            if self._asleep:
                await self._dialect.wake(server, "weights")
            else:
                await self._silence(server)
            await self._dialect.load(server, folder, version)
            if self._asleep:
                await self._dialect.wake(server, "kv_cache")
            await self._dialect.resume(server)
        except RequestFailed as error:
            self._broken = f"{self._server.url}: the server did not take new weights: {error}"
            raise UserError(self._broken) from None
        else:
            self._version, self._loaded, self._asleep = version, True, False
        finally:
            self.pause_s = time.perf_counter() - began
            self._serving.set()

    async def _silence(self, server: Connection) -> None:
        """Have the server end what it writes, and wait until it has."""
        until = time.monotonic() + _LET_GO_S
        await self._dialect.pause(server)
        while self._asking and time.monotonic() < until:
            await asyncio.wait(list(self._asking), timeout=_AGAIN_S)
            if self._asking:
                await self._dialect.pause(server)
        for task in list(self._asking):
            task.cancel()

    def _connection(self) -> Connection:
        """One for each event loop: its waits belong to it."""
        loop = asyncio.get_running_loop()
        if self._link is None or self._link[0] is not loop:
            client = _client(self._manners)
            self._link = (loop, client, Connection(client, self._server, self._manners))
        return self._link[2]

    def _count_failure(self, error: RequestFailed) -> None:
        self._failed += 1
        if self._process is not None:
            self._process.check()
        if self._failed >= _LOST_AFTER:
            self._broken = f"{self._server.url}: {self._failed} requests in a row failed, the last: {error}"
            raise UserError(self._broken)

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise UserError(self._broken)


class _Reply:
    """A reply that one request after another brings."""

    def __init__(self, index: int, rule: StopRule) -> None:
        self.token_ids: list[int] = []
        self._index = index
        self._rule = rule
        self._logprobs: list[float] = []
        self._versions: list[int] = []

    def add(self, drawn: Drawn, version: int, most: int) -> FinishReason | None:
        """Take in what a request brought, and say whether the reply has ended."""
        before = len(self.token_ids)
        self.token_ids += drawn.token_ids[:most]
        self._logprobs += drawn.logprobs[:most]
        self._versions += [version] * len(drawn.token_ids[:most])
        if before:
            # The server does not know what came before, and a stop string may have begun there.
            for length in range(before + 1, min(before + self._rule.reach, len(self.token_ids)) + 1):
                if self._rule.check(self.token_ids[:length]) == "stop":
                    self._cut(length)
                    return "stop"
        if drawn.finish_reason == "abort" and len(self.token_ids) < before + most:
            return None
        return "length" if drawn.finish_reason == "abort" else drawn.finish_reason

    def completion(self, ended: FinishReason) -> Completion:
        """The reply as it is."""
        return Completion(self._index, self.token_ids, self._logprobs, self._versions, ended)

    def _cut(self, length: int) -> None:
        del self.token_ids[length:], self._logprobs[length:], self._versions[length:]


async def _each(replies: list[asyncio.Task[Completion]]) -> AsyncIterator[Completion]:
    try:
        for ended in asyncio.as_completed(replies):
            yield await ended
    finally:
        for reply in replies:
            reply.cancel()


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _client(manners: Manners) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=manners.concurrency)
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)  # for the rest, see Hearing
    return httpx2.AsyncClient(headers=headers(), limits=limits, timeout=timeout)


def _check_dtype(served: str | None, trained: str, url: str) -> None:
    """Raise UserError for a server that computes in another dtype than the trainer."""
    if served not in (None, trained):
        raise UserError(
            f"the server at {url} computes in {served}, and the run in {trained} (`model.dtype`), so their "
            f"log-probs would differ; start it with `--dtype {trained}`, take `--dtype` out of "
            f"`engine.options.arguments`, or set `model.dtype: {served}`"
        )


def _looked(dialect: Dialect, server: Server, manners: Manners) -> Facts:
    """Ask the server what it is, from wherever we are."""

    async def look() -> Facts:
        async with _client(manners) as client:
            try:
                return await dialect.look(Connection(client, server, manners))
            except RequestFailed as error:
                raise UserError(f"{server.url}: {error}") from None

    # Engines are made where a loop may be running, and by a call that does not wait.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(look())).result()
