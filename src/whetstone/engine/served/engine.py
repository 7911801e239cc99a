"""An engine that is a separate server.

Weights never change within a request. For an update the server ends all replies in progress, and each reply
continues under the new weights from the tokens that it has. So the version of every token is known, and no
cache of old weights is read with new ones. The cost is one more prefill of the replies in progress.

A sleeping server has lost its weights. Waking it loads the trainer's current weights, or the last ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from whetstone.core.errors import UserError
from whetstone.core.sample import FinishReason, Routing
from whetstone.engine.engine import Capabilities, Completion, GenerationRequest, check_request
from whetstone.engine.memory import return_device_memory
from whetstone.engine.remote.connection import EndpointConnection, RequestFailed, http_client
from whetstone.engine.remote.request_policy import RequestPolicy
from whetstone.engine.remote.server import RemoteServer
from whetstone.engine.served.backend import Generation, ServerBackend, ServerFacts
from whetstone.engine.served.model_folders import SharedFolder, WeightFiles
from whetstone.engine.served.process import ServerProcess
from whetstone.engine.served.rank_servers import RankServers
from whetstone.engine.stopping import StopRule

# After a pause, seconds to wait for answers in transit. Requests without an answer are sent again.
_DRAIN_S = 10.0

# Seconds after which the pause is repeated, because a request may have arrived after the first one.
_PAUSE_AGAIN_S = 0.5

# Consecutive failed requests, each after all its tries, after which the server counts as lost.
_MAX_FAILURES = 8


class ServedEngine:
    """An Engine that uses ``backend`` for the server at ``url`` (its root).

    model_folder: has the run's initial weights. loaded: whether the server has these weights already;
    otherwise it loads them before its first reply. process: the server, if it was started here. ranks: the
    place of this rank. seeds: whether requests carry seeds. Raises UserError for a server that cannot serve a
    run.
    """

    def __init__(
        self,
        backend: ServerBackend,
        url: str,
        tokenizer: Any,
        model_folder: SharedFolder,
        *,
        loaded: bool,
        process: ServerProcess | None = None,
        ranks: RankServers | None = None,
        seeds: bool = True,
        policy: RequestPolicy,
    ) -> None:
        self.capabilities = Capabilities(
            repeatable_streams=False,
            weights=frozenset({"tensors", "folder"}),
            supports=backend.supports,
            routing=backend.routing,
        )
        self._backend = backend
        self._server = RemoteServer(url=url, model="", owner=backend.name)
        self._tokenizer = tokenizer
        self._model_folder = model_folder
        self._process = process
        self._ranks = ranks or RankServers(None)
        self._seeds = seeds
        self._policy = policy
        self._version = 0
        # The leader of the ranks that share a server prepares it.
        holds = loaded and self._ranks.leads
        facts = _probe(backend, self._server, policy, model_folder.files().folder if holds else None)
        served, trained = facts.dtype, model_folder.dtype
        if served not in (None, trained):
            raise UserError(
                f"the server at {self._server.url} computes in {served}, and the run in {trained} "
                "(`model.dtype`), so their log-probs would differ; start it with "
                f"`--dtype {trained}`, remove `--dtype` from `engine.options.arguments`, or set "
                f"`model.dtype: {served}`"
            )
        self._context = facts.context
        self._loaded = loaded
        self._holds_folder = loaded
        """Whether the server's weights are those of the model folder, so that changes are sufficient."""
        self._asleep = False
        self._connection_of_loop: (
            tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient, EndpointConnection] | None
        ) = None
        self._serving = asyncio.Event()
        self._updating = asyncio.Lock()
        self._requests: set[asyncio.Task[Generation]] = set()
        self._unfinished: dict[int, list[_Reply]] = {}
        self._failed = 0
        self._broken: str | None = None
        self.pause_s = 0.0
        """Seconds for which the last weight update stopped generation."""
        if loaded:
            self._serving.set()

    @property
    def version(self) -> int:
        """The version of the weights in use; 0 until the first update."""
        return self._version

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        remedy = "lower max_tokens, or start it with a longer one"
        check_request(request, self._context, owner="the server's", remedy=remedy)
        self._backend.check(request.params)

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Request the replies now, and yield each as it ends. Call it inside an event loop.

        Leaving the iterator early cancels the remaining replies. A reply that failed ends with ``abort``.
        Raises UserError as ``check`` does, and if the server is lost.
        """
        self._raise_if_broken()
        self.check(request)
        loop = asyncio.get_running_loop()
        return _as_completed([loop.create_task(self._reply(request, index)) for index in range(request.n)])

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """See Engine. Replies in progress are prefilled again with the new weights and continue.

        Raises ValueError for weights that do not fit, with nothing changed. A server that fails to load them
        is not used again, since its weights are unknown: UserError, now and later.
        """
        self._raise_if_broken()
        async with self._updating:
            if isinstance(weights, Path):
                self._holds_folder = False
                await self._load(WeightFiles(weights, None), version)
            else:
                # Not in a thread: the tensors may belong to a model that torch uses on this thread.
                self._model_folder.update(weights)
                held, self._holds_folder = self._holds_folder, False
                if self._asleep:
                    # The server needs the memory that the trainer has freed.
                    return_device_memory()
                # The owner of this machine's folder has written the files.
                own = await self._written()
                told = [str(own.folder), str(own.changes or "")]
                folder, changes = self._ranks.from_owner(told, "the weights for the servers")
                files = WeightFiles(Path(folder), Path(changes) if changes else None)
                await self._load(files if held else WeightFiles(files.folder, None), version)
                self._holds_folder = True
            # The ranks that share the folder, or a server, continue together.
            self._ranks.wait("the servers to have new weights")

    async def sleep(self) -> None:
        """See Sleeper. A request in the meantime wakes the server with the weights that it had."""
        self._raise_if_broken()
        async with self._updating:
            if self._asleep or not self._ranks.leads:
                return
            server = self._connection()
            self._serving.clear()
            self._loaded = self._holds_folder = False
            try:
                await self._stop_generation(server)
                await self._backend.sleep(server)
            except RequestFailed as error:
                self._broken = f"{self._server.url}: the server did not fall asleep: {error}"
                self._serving.set()
                raise UserError(self._broken) from None
            self._asleep = True

    async def close(self) -> None:
        """Stop the server if it was started here; replies in progress end with ``abort``. A second call does
        nothing."""
        if self._broken is None:
            self._broken = "the engine is closed"
        for task in list(self._requests):
            task.cancel()
        self._serving.set()
        if self._connection_of_loop is not None:
            await self._connection_of_loop[1].aclose()
            self._connection_of_loop = None
        if self._process is not None:
            self._process.close()
            self._process = None
        self._model_folder.close()

    def oldest_version(self, request: GenerationRequest) -> int:
        """See VersionTracker."""
        # A reply without tokens begins with the present weights, because an update ends it on the server.
        known = (reply.oldest for reply in self._unfinished.get(id(request), []))
        return min((version for version in known if version is not None), default=self._version)

    async def _reply(self, request: GenerationRequest, index: int) -> Completion:
        reply = _Reply(request, index, StopRule(self._tokenizer, frozenset(), request.params))
        siblings = self._unfinished.setdefault(id(request), [])
        siblings.append(reply)
        try:
            return await self._complete(reply, request, index)
        finally:
            siblings.remove(reply)
            if not siblings:
                self._unfinished.pop(id(request), None)

    async def _complete(self, reply: _Reply, request: GenerationRequest, index: int) -> Completion:
        """Request a reply, in several parts if the weights change, until it has ended."""
        seed = (request.seed * 1_000_003 + index) % 2**31 if self._seeds else None
        while True:
            await self._ensure_loaded()
            await self._serving.wait()
            version = self._version
            if self._broken is not None:
                return reply.completion("abort")
            left = request.params.max_tokens - len(reply.token_ids)
            ids = [*request.prompt_ids, *reply.token_ids]
            # The continuation needs another seed, or it would draw the same random numbers again.
            own = None if seed is None else (seed + len(reply.token_ids)) % 2**31
            body = self._backend.request(ids, request.params, left, own)
            try:
                drawn = await self._request(self._backend.path(request.params), body)
            except RequestFailed as error:
                self._count_failure(error)
                return reply.completion("abort")
            ended = reply.add(drawn, version, left)
            if ended is not None:
                return reply.completion(ended)
            if version == self._version and self._serving.is_set() and not drawn.token_ids:
                self._count_failure(RequestFailed("it ended a reply without a token"))
                return reply.completion("abort")

    async def _request(self, path: str, body: dict[str, Any]) -> Generation:
        """Return the result of one request; an empty ``abort`` if an update cancelled it."""
        ask = asyncio.ensure_future(self._connection().post(path, body, self._backend.read_reply))
        self._requests.add(ask)
        try:
            drawn = await ask
            self._failed = 0
            return drawn
        except asyncio.CancelledError:
            if ask.cancelled() and not _task_is_cancelled():
                return Generation([], [], "abort")
            ask.cancel()
            raise
        finally:
            self._requests.discard(ask)

    async def _ensure_loaded(self) -> None:
        if self._loaded:
            return
        async with self._updating:
            if not self._loaded:
                files = await self._written()
                await self._load(WeightFiles(files.folder, None), self._version)
                self._holds_folder = True

    async def _written(self) -> WeightFiles:
        """Write the model folder's files in a thread, and return them."""
        written = asyncio.ensure_future(asyncio.to_thread(self._model_folder.files))
        try:
            return await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written])
            raise

    async def _load(self, files: WeightFiles, version: int) -> None:
        """Load files into the server, and report ``version`` from now on. Their changes suffice if given."""
        if not self._ranks.leads:
            self._version = version
            return
        server = self._connection()
        self._serving.clear()
        began = time.perf_counter()
        try:
            if self._asleep:
                await self._backend.wake(server, "weights")
            else:
                await self._stop_generation(server)
            await self._backend.load(server, files.folder, version, files.changes)
            if self._asleep:
                await self._backend.wake(server, "kv_cache")
            await self._backend.resume(server)
        except RequestFailed as error:
            self._broken = f"{self._server.url}: the server did not take new weights: {error}"
            raise UserError(self._broken) from None
        else:
            self._version, self._loaded, self._asleep = version, True, False
        finally:
            self.pause_s = time.perf_counter() - began
            self._serving.set()

    async def _stop_generation(self, server: EndpointConnection) -> None:
        """Let the server end its replies, and wait until it has."""
        until = time.monotonic() + _DRAIN_S
        await self._backend.pause(server)
        while self._requests and time.monotonic() < until:
            await asyncio.wait(list(self._requests), timeout=_PAUSE_AGAIN_S)
            if self._requests:
                await self._backend.pause(server)
        for task in list(self._requests):
            task.cancel()

    def _connection(self) -> EndpointConnection:
        """Return the connection of this event loop, because its waits belong to one loop."""
        loop = asyncio.get_running_loop()
        if self._connection_of_loop is None or self._connection_of_loop[0] is not loop:
            client = http_client(self._server, self._policy)
            self._connection_of_loop = (loop, client, EndpointConnection(client, self._server, self._policy))
        return self._connection_of_loop[2]

    def _count_failure(self, error: RequestFailed) -> None:
        self._failed += 1
        if self._process is not None:
            self._process.check()
        if self._failed >= _MAX_FAILURES:
            self._broken = f"{self._server.url}: {self._failed} requests in a row failed, the last: {error}"
            raise UserError(self._broken)

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise UserError(self._broken)


class _Reply:
    """A reply that is assembled from consecutive requests."""

    def __init__(self, request: GenerationRequest, index: int, rule: StopRule) -> None:
        self.token_ids: list[int] = []
        self._request = request
        self._index = index
        self._rule = rule
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._routing: Routing | None = None
        self._supports: list[list[int]] = []

    def add(self, drawn: Generation, version: int, most: int) -> FinishReason | None:
        """Add the result of a request, and return why the reply has ended, or None."""
        before = len(self.token_ids)
        self.token_ids += drawn.token_ids[:most]
        self._logprobs += drawn.logprobs[:most]
        self._versions += [version] * len(drawn.token_ids[:most])
        self._supports += drawn.supports[:most]
        if drawn.routing is not None and self._request.routing:
            known = self._routing
            self._routing = drawn.routing if known is None else known.extended(drawn.routing)
        if before:
            # The server only checks its own tokens, but a stop string may have begun in an earlier request.
            for length in range(before + 1, min(before + self._rule.reach, len(self.token_ids)) + 1):
                if self._rule.check(self.token_ids[:length]) == "stop":
                    self._cut(length)
                    return "stop"
        if drawn.finish_reason == "abort" and len(self.token_ids) < before + most:
            return None
        return "length" if drawn.finish_reason == "abort" else drawn.finish_reason

    @property
    def oldest(self) -> int | None:
        """The version of the weights of its first token; None before there is one."""
        return self._versions[0] if self._versions else None

    def completion(self, ended: FinishReason) -> Completion:
        """Return the reply so far."""
        # The server may have read tokens that were cut.
        read = len(self._request.prompt_ids) + len(self.token_ids) - 1
        return Completion(
            self._index,
            self.token_ids,
            self._logprobs,
            self._versions,
            ended,
            routing=self._routing and self._routing.part(0, read),
            supports=self._supports,
        )

    def _cut(self, length: int) -> None:
        for each in (self.token_ids, self._logprobs, self._versions, self._supports):
            del each[length:]


async def _as_completed(replies: list[asyncio.Task[Completion]]) -> AsyncIterator[Completion]:
    try:
        for ended in asyncio.as_completed(replies):
            yield await ended
    finally:
        for reply in replies:
            reply.cancel()


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _probe(
    dialect: ServerBackend, server: RemoteServer, manners: RequestPolicy, folder: Path | None
) -> ServerFacts:
    """Query the server's facts, with or without a running event loop. ``folder``: has the server's weights;
    None if it has others."""

    async def look() -> ServerFacts:
        async with http_client(server, manners) as client:
            connection = EndpointConnection(client, server, manners)
            try:
                facts = await dialect.probe(connection)
                if folder is not None:
                    await dialect.find_weights(connection, folder)
                return facts
            except RequestFailed as error:
                raise UserError(f"{server.url}: {error}") from None

    # Engines are built synchronously, possibly inside a running loop, so the query needs its own thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(look())).result()
