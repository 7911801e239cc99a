"""Continuous batching: selects the running replies, and makes one step for all of them.

A step feeds every running row its newest token and samples the next one. Finished rows leave the batch at
once; waiting requests take their places in order of arrival. A prompt is prefilled once except for its last
token, and its keys and values are shared by the request's replies. The last prompt token goes through the
same step as every other token, so there is only one path from logits to samples.

Memory limits the number of rows. A reply only enters if the cache can hold all rows at the length to which
the longest may still grow. So running replies are never stopped for lack of memory.

Models with `longrope` run in two batches: sequences short enough for the first set of frequencies, and longer
ones. A reply that outgrows the first set is prefilled again into the second batch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from whetstone.core.sample import FinishReason
from whetstone.engine.architecture import RopeLimits
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.kv_cache import BatchCache, PromptCache, PromptKV
from whetstone.engine.out_of_memory import SAMPLING_KEYS, explain_out_of_memory
from whetstone.engine.sampling import Sampler
from whetstone.engine.stopping import StopRule, end_tokens

# The tokens, padding included, of one forward pass over prompts. It bounds the memory of its activations.
_PREFILL_TOKENS = 4096


@dataclass(eq=False)
class Ticket:
    """A request in the engine. ``started`` of its replies have entered the batch. ``oldest`` is the version
    of the weights that sampled its first token."""

    request: GenerationRequest
    started: int = 0
    prompt: PromptKV | None = None
    oldest: int | None = None

    @property
    def reach(self) -> int:
        """The most tokens that one of its rows may have."""
        return len(self.request.prompt_ids) + self.request.params.max_tokens


@dataclass(eq=False)
class _Row:
    """A running reply."""

    ticket: Ticket
    index: int
    rule: StopRule
    stream: random.Random
    # The token that the next step feeds.
    newest: int
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    versions: list[int] = field(default_factory=list[int])

    def completion(self, reason: FinishReason) -> Completion:
        return Completion(self.index, self.token_ids, self.logprobs, self.versions, reason)


Ended = list[tuple[Ticket, Completion]]


class _Batch:
    """Rows that share a forward pass, and their cache. ``cache.lengths[i]`` is the length of row i."""

    def __init__(self, cells: int) -> None:
        self.rows: list[_Row] = []
        self.cache = BatchCache(cells)

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows, and of tokens in their caches."""
        return len(self.rows), sum(self.cache.lengths)

    def keep(self, kept: list[int]) -> None:
        """Drop all rows except ``kept`` (ascending)."""
        if len(kept) < len(self.rows):
            self.rows = [self.rows[i] for i in self.cache.retain(kept)]

    def forward(self, model: Any) -> torch.Tensor:
        """Return the logits after the newest token of each row: [rows, vocabulary]."""
        lengths = torch.tensor(self.cache.lengths)
        columns = torch.arange(self.cache.width + 1)
        # Rows are right-aligned in the cache: a shorter one begins later.
        mask = columns >= (self.cache.width - lengths)[:, None]
        output = model(
            input_ids=torch.tensor([[row.newest] for row in self.rows], device=model.device),
            attention_mask=mask.to(model.device),
            position_ids=lengths[:, None].to(model.device),
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache.advance()
        return output.logits[:, -1]


class Scheduler:
    """The running batch of one model. Not thread-safe."""

    def __init__(
        self, model: Any, tokenizer: Any, *, max_batch: int, cache_bytes: int, rope: RopeLimits
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_batch = max_batch
        self._rope = rope
        self._ends = end_tokens(model, tokenizer)
        self._sampler = Sampler()
        self._waiting: deque[Ticket] = deque()
        self.token_bytes = self._measure_token_bytes()
        # With two batches, either may come to hold all rows, so each gets half of the memory.
        self._cells = cache_bytes // self.token_bytes // (1 if rope.switch is None else 2)
        self._clear()

    def _clear(self) -> None:
        self._short, self._long = _Batch(self._cells), _Batch(self._cells)

    def fits(self, ticket: Ticket) -> bool:
        """Return whether a reply to a request can run at all."""
        return self._short.cache.max_rows(ticket.reach) > 0

    @property
    def bytes(self) -> int:
        """The size of the cache of running replies."""
        return self._short.cache.bytes + self._long.cache.bytes

    @property
    def busy(self) -> bool:
        """Whether any reply is running or waiting."""
        return bool(self._short.rows or self._long.rows or self._waiting)

    def add(self, ticket: Ticket) -> None:
        """Queue a request."""
        self._waiting.append(ticket)

    # The remaining rows move within tensors that were created in inference mode.
    @torch.inference_mode()
    def cancel(self, ticket: Ticket) -> None:
        """Remove a request and its running replies."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        for batch in (self._short, self._long):
            batch.keep([i for i, row in enumerate(batch.rows) if row.ticket is not ticket])

    def abort(self) -> Ended:
        """End every reply, running or waiting, with its tokens so far."""
        rows = self._short.rows + self._long.rows
        ended = [(row.ticket, row.completion("abort")) for row in rows]
        for ticket in self._waiting:
            rest = range(ticket.started, ticket.request.n)
            ended += [(ticket, Completion(index, [], [], [], "abort")) for index in rest]
        self._waiting.clear()
        self._clear()
        return ended

    def forget_prompts(self) -> None:
        """Drop the caches of waiting prompts: new weights give new keys and values."""
        for ticket in self._waiting:
            ticket.prompt = None

    @torch.inference_mode()
    def step(self, version: int) -> Ended:
        """Admit waiting replies that fit, then sample one token for every row; ``version`` marks it. Returns
        the finished replies.

        Raises OutOfMemory.
        """
        device = self._model.device
        with explain_out_of_memory("reading prompts", device, self._describe_load, SAMPLING_KEYS):
            self._admit()
            self._move_long_rows()
        with explain_out_of_memory("sampling", device, self._describe_load, SAMPLING_KEYS):
            return self._sample(version)

    def _describe_load(self) -> str:
        batches = (self._short, self._long)
        rows, tokens = (sum(each) for each in zip(*(batch.size for batch in batches), strict=True))
        waiting = sum(ticket.request.n - ticket.started for ticket in self._waiting)
        return f"{tokens} tokens of {rows} running replies, {waiting} replies waiting"

    def _sample(self, version: int) -> Ended:
        ended: Ended = []
        for batch in (self._short, self._long):
            if batch.rows:
                ended += self._draw(batch, version)
        # Training is next, and needs the memory of the cache.
        if not self.busy:
            self._clear()
        return ended

    def _draw(self, batch: _Batch, version: int) -> Ended:
        """Sample one token for every row of a batch."""
        tokens, logprobs = self._sampler.draw(
            batch.forward(self._model),
            [row.ticket.request.params for row in batch.rows],
            [row.stream.random() for row in batch.rows],
        )
        ended: Ended = []
        kept: list[int] = []
        for i, (row, token, logprob) in enumerate(zip(batch.rows, tokens, logprobs, strict=True)):
            if row.ticket.oldest is None:
                row.ticket.oldest = version
            row.newest = token
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.versions.append(version)
            reason = row.rule.check(row.token_ids)
            if reason is None:
                kept.append(i)
            else:
                ended.append((row.ticket, row.completion(reason)))
        batch.keep(kept)
        return ended

    def _admit(self) -> None:
        """Move waiting replies into the batch while there is room."""
        chosen = self._select_waiting()
        if not chosen:
            return
        # The prompt is read once, also if its replies start at different times.
        unread = [ticket for ticket, _ in chosen if ticket.prompt is None]
        read = self._read([ticket.request.prompt_ids[:-1] for ticket in unread])
        for ticket, prompt in zip(unread, read, strict=True):
            ticket.prompt = prompt
        for batch in (self._short, self._long):
            parts = [(t, count) for t, count in chosen if self._batch_of(t.request.prompt_ids) is batch]
            if parts:
                batch.cache.reserve(
                    rows=sum(count for _, count in parts),
                    length=max(len(ticket.request.prompt_ids) - 1 for ticket, _ in parts),
                    growth=max(ticket.request.params.max_tokens for ticket, _ in parts),
                )
            for ticket, count in parts:
                self._start_replies(ticket, count, batch)

    def _select_waiting(self) -> list[tuple[Ticket, int]]:
        """Return the waiting requests that may start, in order, and how many replies of each."""
        if not self._waiting:
            return []
        running = self._short.rows + self._long.rows
        rows = len(running)
        reach = max((row.ticket.reach for row in running), default=0)
        chosen: list[tuple[Ticket, int]] = []
        for ticket in self._waiting:
            reach = max(reach, ticket.reach)
            most = min(self._max_batch, self._short.cache.max_rows(reach))
            count = min(most - rows, ticket.request.n - ticket.started)
            # Later requests must wait too, or a long one could wait forever.
            if count <= 0:
                break
            chosen.append((ticket, count))
            rows += count
        return chosen

    @torch.inference_mode()
    def _measure_token_bytes(self) -> int:
        """Return the cache size of a token over all layers, measured by a forward pass."""
        cache = PromptCache()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self._model.device)
        self._model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
        return cache.bytes

    def _batch_of(self, prompt_ids: Sequence[int]) -> _Batch:
        return self._long if self._rope.is_long(len(prompt_ids)) else self._short

    def _start_replies(self, ticket: Ticket, count: int, batch: _Batch) -> None:
        """Start ``count`` more replies of a request whose prompt has been prefilled."""
        assert ticket.prompt is not None
        request = ticket.request
        batch.cache.add(ticket.prompt, count)
        for index in range(ticket.started, ticket.started + count):
            # Each reply has its own stream, so its tokens do not depend on when it was admitted.
            stream = random.Random(f"{request.seed}/{index}")
            rule = StopRule(self._tokenizer, self._ends, request.params)
            batch.rows.append(_Row(ticket, index, rule, stream, request.prompt_ids[-1]))
        ticket.started += count
        if ticket.started == request.n:
            ticket.prompt = None
            self._waiting.remove(ticket)

    def _move_long_rows(self) -> None:
        """Move rows that have outgrown the first set of frequencies to the batch of the second."""
        short = self._short
        moving = [i for i, cached in enumerate(short.cache.lengths) if self._rope.is_long(cached + 1)]
        if not moving:
            return
        rows = [short.rows[i] for i in moving]
        short.keep([i for i in range(len(short.rows)) if i not in moving])
        read = self._read([row.ticket.request.prompt_ids + row.token_ids[:-1] for row in rows])
        self._long.cache.reserve(
            rows=len(rows),
            length=max(past.length for past in read),
            growth=max(row.ticket.request.params.max_tokens for row in rows),
        )
        for row, past in zip(rows, read, strict=True):
            self._long.cache.add(past, 1)
            self._long.rows.append(row)

    def _read(self, pasts: Sequence[list[int]]) -> list[PromptKV]:
        """Return the keys and values of sequences up to their newest token."""
        result = [PromptKV(0)] * len(pasts)
        batch: list[int] = []
        # Sequences of similar length need little padding.
        for place in sorted(range(len(pasts)), key=lambda i: len(pasts[i])):
            length = len(pasts[place])
            if length == 0:
                continue
            full = length * (len(batch) + 1) > _PREFILL_TOKENS
            switches = (
                batch and self._rope.is_long(length + 1) and not self._rope.is_long(len(pasts[batch[0]]) + 1)
            )
            if batch and (full or switches):
                self._read_batch(batch, pasts, result)
                batch = []
            batch.append(place)
        if batch:
            self._read_batch(batch, pasts, result)
        return result

    def _read_batch(self, places: list[int], pasts: Sequence[list[int]], result: list[PromptKV]) -> None:
        """Make one forward pass over right-padded sequences; causal attention never reads the padding."""
        width = self._rope.columns(max(len(pasts[place]) for place in places))
        ids = torch.zeros(len(places), width, dtype=torch.long)
        for row, place in enumerate(places):
            ids[row, : len(pasts[place])] = torch.tensor(pasts[place])
        cache = PromptCache()
        # The base model is sufficient, because no logits are needed.
        self._model.base_model(input_ids=ids.to(self._model.device), past_key_values=cache, use_cache=True)
        for row, place in enumerate(places):
            result[place] = cache.prompt(row, len(pasts[place]))
