"""The embedded engine: a transformers model in this process, on its current device.

Tested on the CPU, and on a simulated device that accepts no CPU tensors; ``benchmarks/device_day.md`` has
runs on a GPU.

The event loop passes requests in and replies out. All access to the model happens on one worker thread, one
call after another, so a weight update always falls between two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from whetstone.core.errors import UserError
from whetstone.core.sample import Routing
from whetstone.engine.architecture import check_architecture, check_length, rope_limits
from whetstone.engine.batches import Ticket
from whetstone.engine.engine import Capabilities, Completion, GenerationRequest, check_request
from whetstone.engine.expert_routing import has_experts
from whetstone.engine.invariance import supports_invariance
from whetstone.engine.memory import cache_limit, total_memory
from whetstone.engine.scheduler import Ended, Scheduler
from whetstone.engine.weights import copy_weights, folder_weights

P = ParamSpec("P")
T = TypeVar("T")
_Inbox = asyncio.Queue[Completion | Exception]


class TorchEngine:
    """An Engine for a Hugging Face causal language model whose layers are all attention layers.

    model: in evaluation mode from now on; the engine uses it in place and writes new weights into it.
        tokenizer: decodes the end of a reply to find stop strings.
    max_batch: concurrent replies if the cache has room; more replies wait.
    cache_mb: MiB for keys and values of running replies; default: a quarter of the device's memory. Prompts
        during prefill need additional memory.
    max_context: prompt and reply together; default: the model's maximum.
    invariant: whether log-probs shall not depend on the other replies in the batch, and be those of the
        trainer bit for bit, where this is possible (``engine/invariance.py``).
    static: whether steps have fixed shapes (``engine/static_batch.py``); default: on accelerators, for models
        that support it.

    It generates with torch's thread count at construction.
    """

    capabilities = Capabilities(
        repeatable_streams=True,
        weights=frozenset({"tensors", "folder"}),
        supports=True,
        in_place=True,
        routing=True,
    )

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_batch: int = 256,
        max_context: int | None = None,
        cache_mb: int | None = None,
        invariant: bool = False,
        static: bool | None = None,
    ) -> None:
        check_architecture(model.config)
        config = model.config.get_text_config()
        rope = rope_limits(model)
        if max_batch < 1:
            raise UserError(f"max_batch is {max_batch}; at least one reply must be able to run")
        if cache_mb is not None and cache_mb < 1:
            raise UserError(
                f"cache_mb is {cache_mb}; give the MiB that the cache of running replies may take"
            )
        self._model = model.eval()
        self._vocabulary: int = config.vocab_size
        self._has_experts = has_experts(model)
        self._max_context = max_context or int(getattr(config, "max_position_embeddings", 0)) or 2**31
        if rope.max_tokens is not None and max_context is not None:
            check_length(rope, max_context, "lower max_context")
        # Not every kind of device knows its memory.
        self._cache_bytes = cache_limit(cache_mb, 0 if cache_mb else total_memory(model.device))
        self._scheduler = Scheduler(
            model,
            tokenizer,
            max_batch=max_batch,
            cache_bytes=self._cache_bytes,
            rope=rope,
            invariant=invariant and supports_invariance(model),
            static=static,
        )
        self._version = 0
        self._closed = False
        self._arrivals: list[Ticket] = []
        self._departures: list[Ticket] = []
        self._inbox: dict[Ticket, _Inbox] = {}
        self._tickets: dict[int, Ticket] = {}
        self._driver: asyncio.Task[None] | None = None
        # torch counts threads per calling thread; without this the worker would take all cores.
        threads = torch.get_num_threads()
        self._worker = ThreadPoolExecutor(
            1, "torch-engine", initializer=torch.set_num_threads, initargs=(threads,)
        )

    @property
    def version(self) -> int:
        """The version of the weights in use; 0 until the first update."""
        return self._version

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        check_request(request, self._max_context)
        prompt, wanted = len(request.prompt_ids), request.params.max_tokens
        if not self._scheduler.fits(Ticket(request)):
            needed = (prompt + wanted) * self._scheduler.token_bytes
            raise UserError(
                f"a prompt of {prompt} tokens and up to {wanted} new ones may take {needed / 2**20:.0f} MiB "
                f"of keys and values, and the cache holds {self._cache_bytes / 2**20:.0f}; raise "
                "`engine.options.cache_mb` or lower max_tokens"
            )
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= self._vocabulary:
            raise UserError(f"the prompt has token ids outside the model's vocabulary of {self._vocabulary}")
        if request.routing and not self._has_experts:
            raise UserError(
                "the model has no layers with experts, so there is no routing to return; set "
                "`trainer.routing_replay` to false"
            )

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Queue the request now, and yield its replies as each ends. Call it inside an event loop.

        Leaving the iterator early cancels the rest of the request. Raises UserError if the prompt is empty,
        has unknown ids, or leaves no room for ``max_tokens``.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        self.check(request)
        self._start_driver(asyncio.get_running_loop())
        ticket = Ticket(request)
        inbox = self._inbox[ticket] = asyncio.Queue()
        self._arrivals.append(ticket)
        self._tickets[id(request)] = ticket
        return self._replies(ticket, inbox)

    def oldest_version(self, request: GenerationRequest) -> int:
        """See VersionTracker."""
        # The worker may sample and take new weights meanwhile. Read in this order, the result is never too
        # high.
        version, ticket = self._version, self._tickets.get(id(request))
        return version if ticket is None or ticket.oldest is None else ticket.oldest

    async def score(
        self, request: GenerationRequest, reply_ids: list[int]
    ) -> tuple[list[float], Routing | None]:
        """Return log-probs and routing of a given reply under the current weights; see Completion. The
        log-probs are over the whole vocabulary."""
        return await self._on_worker(self._score, request, reply_ids)

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """Replace the weights between two steps; see Engine. Replies keep their cached past.

        weights: every parameter by name, as ``named_parameters`` or ``state_dict`` gives them (read on the
        worker thread), or a folder as ``save_pretrained`` writes it. Raises, with nothing changed, ValueError
        if they do not fit the model and UserError for a folder without weights.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        await self._on_worker(self._update, weights, version)

    async def close(self) -> None:
        """Free model and cache; replies in progress end with ``abort``. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        driver = self._driver
        if driver is not None and driver.get_loop() is asyncio.get_running_loop():
            await driver
        self._worker.shutdown(wait=True)
        del self._scheduler, self._model

    def _start_driver(self, loop: asyncio.AbstractEventLoop) -> None:
        driver = self._driver
        if driver is not None and not driver.done():
            if driver.get_loop() is loop:
                return
            if not driver.get_loop().is_closed():
                raise RuntimeError(
                    "the engine is in use by another event loop; await its replies there first"
                )
            # The receivers of these replies ended with the old event loop.
            self._worker.submit(self._abort, [])
            self._inbox.clear()
        self._driver = loop.create_task(self._drive(), name="torch-engine")

    async def _replies(self, ticket: Ticket, inbox: _Inbox) -> AsyncIterator[Completion]:
        missing = ticket.request.n
        try:
            while missing:
                item = await inbox.get()
                if isinstance(item, Exception):
                    raise item
                missing -= 1
                yield item
        finally:
            self._tickets.pop(id(ticket.request), None)
            if self._inbox.pop(ticket, None) is not None and missing:
                self._departures.append(ticket)

    async def _drive(self) -> None:
        """Step the batch until no work is left."""
        try:
            while not self._closed and (self._arrivals or self._scheduler.busy):
                arrivals, self._arrivals = self._arrivals, []
                departures, self._departures = self._departures, []
                self._deliver(await self._on_worker(self._step, arrivals, departures))
                # Let callers of finished replies run before the next step, so that the order does not depend
                # on timing.
                await asyncio.sleep(0)
            if self._closed:
                arrivals, self._arrivals = self._arrivals, []
                self._deliver(await self._on_worker(self._abort, arrivals))
        except Exception as error:
            # The model failed: every caller learns why, and the next request finds an empty batch.
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(RuntimeError("the event loop that the engine generated for was shut down"))
            raise

    def _deliver(self, ended: Ended) -> None:
        for ticket, completion in ended:
            # The caller may have stopped waiting.
            if ticket in self._inbox:
                self._inbox[ticket].put_nowait(completion)

    def _fail(self, error: Exception) -> None:
        self._arrivals = []
        self._worker.submit(self._abort, [])
        for inbox in self._inbox.values():
            inbox.put_nowait(error)
        self._inbox.clear()

    async def _on_worker(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: call(*args, **kwargs))

    # Methods that run on the worker thread.

    def _step(self, arrivals: list[Ticket], departures: list[Ticket]) -> Ended:
        for ticket in arrivals:
            self._scheduler.add(ticket)
        for ticket in departures:
            self._scheduler.cancel(ticket)
        return self._scheduler.step(self._version)

    def _score(self, request: GenerationRequest, reply_ids: list[int]) -> tuple[list[float], Routing | None]:
        ids = torch.tensor([[*request.prompt_ids, *reply_ids]], device=self._model.device)
        read = partial(self._model, input_ids=ids[:, :-1], use_cache=False)
        routing = None
        with torch.no_grad():
            if request.routing:
                routers = self._scheduler.recorders()
                output, experts = routers.record(read)
                routing = routers.routing(experts.numpy().tobytes())
            else:
                output = read()
            logits = output.logits[0, len(request.prompt_ids) - 1 :]
            log_probs = torch.log_softmax(logits.float() / (request.params.temperature or 1.0), -1)
        return log_probs.gather(-1, ids[0, -len(reply_ids) :, None])[:, 0].tolist(), routing

    def _abort(self, arrivals: list[Ticket]) -> Ended:
        for ticket in arrivals:
            self._scheduler.add(ticket)
        return self._scheduler.abort()

    def _update(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        # Running replies continue. Each token records the version of the weights that sampled it.
        copy_weights(self._model, folder_weights(weights) if isinstance(weights, Path) else weights)
        self._scheduler.forget_prompts()
        self._version = version


def embedded_engine(model: Callable[[], Any], tokenizer: Any, **options: Any) -> TorchEngine:
    """Build the engine ``torch`` of the table in ``factory.py``. options: those of ``TorchOptions``."""
    return TorchEngine(model(), tokenizer, **options)
