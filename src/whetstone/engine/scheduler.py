"""Continuous batching: which replies run, and one step for all of them.

A step feeds every running row its newest token and draws the next one. Rows that end leave the
batch at once; waiting requests take their places, in order of arrival. A prompt is read once, all
but its last token, and its keys and values are shared out to the request's replies; the last prompt
token goes through the same step as every other token, so there is one path from logits to samples.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from whetstone.engine.base import Completion, GenerationRequest
from whetstone.engine.kv_cache import BatchCache, PromptCache, PromptKV
from whetstone.engine.sampling import Sampler
from whetstone.engine.stopping import StopRule, end_tokens
from whetstone.sample import FinishReason

_PREFILL_TOKENS = 4096  # tokens, padding included, that one forward over prompts may take


@dataclass(eq=False)
class Ticket:
    """A request on its way through the engine. ``placed`` of its replies have entered the batch."""

    request: GenerationRequest
    placed: int = 0
    prompt: PromptKV | None = None


@dataclass(eq=False)
class _Row:
    """A running reply."""

    ticket: Ticket
    index: int
    rule: StopRule
    stream: random.Random
    newest: int  # the token that the next step feeds
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    versions: list[int] = field(default_factory=list[int])

    def completion(self, reason: FinishReason) -> Completion:
        return Completion(self.index, self.token_ids, self.logprobs, self.versions, reason)


Ended = list[tuple[Ticket, Completion]]


class Scheduler:
    """The running batch of one model. Not thread-safe: one call at a time."""

    def __init__(self, model: Any, tokenizer: Any, max_batch: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_batch = max_batch
        self._ends = end_tokens(model, tokenizer)
        self._sampler = Sampler()
        self._waiting: deque[Ticket] = deque()
        self._rows: list[_Row] = []
        self._cache = BatchCache(max_batch)

    @property
    def busy(self) -> bool:
        """Whether any reply is running or waiting."""
        return bool(self._rows or self._waiting)

    def add(self, ticket: Ticket) -> None:
        """Queue a request."""
        self._waiting.append(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """Forget a request and its running replies."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        self._keep([i for i, row in enumerate(self._rows) if row.ticket is not ticket])

    def abort(self) -> Ended:
        """End every reply, running or waiting, with what it has."""
        ended = [(row.ticket, row.completion("abort")) for row in self._rows]
        for ticket in self._waiting:
            rest = range(ticket.placed, ticket.request.n)
            ended += [(ticket, Completion(index, [], [], [], "abort")) for index in rest]
        self._waiting.clear()
        self._rows = []
        self._cache = BatchCache(self._max_batch)
        return ended

    def forget_prompts(self) -> None:
        """Read waiting prompts anew: new weights give them new keys and values."""
        for ticket in self._waiting:
            ticket.prompt = None

    @torch.inference_mode()
    def step(self, version: int) -> Ended:
        """Admit what fits, then draw one token for every row; ``version`` marks it. Returns what ended."""
        self._admit()
        if not self._rows:
            return []
        logits = self._forward()
        self._cache.advance()
        tokens, logprobs = self._sampler.draw(
            logits,
            [row.ticket.request.params for row in self._rows],
            [row.stream.random() for row in self._rows],
        )
        ended: Ended = []
        kept: list[int] = []
        for i, (row, token, logprob) in enumerate(zip(self._rows, tokens, logprobs, strict=True)):
            row.newest = token
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.versions.append(version)
            reason = row.rule.check(row.token_ids)
            if reason is None:
                kept.append(i)
            else:
                ended.append((row.ticket, row.completion(reason)))
        self._keep(kept)
        return ended

    def _forward(self) -> torch.Tensor:
        """Logits after the newest token of each row: [rows, vocabulary]."""
        device = self._model.device
        lengths = torch.tensor(self._cache.lengths)
        columns = torch.arange(self._cache.width + 1)
        mask = columns >= (self._cache.width - lengths)[:, None]
        output = self._model(
            input_ids=torch.tensor([[row.newest] for row in self._rows], device=device),
            attention_mask=mask.to(device),
            position_ids=lengths[:, None].to(device),
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.logits[:, -1]

    def _keep(self, kept: list[int]) -> None:
        if len(kept) < len(self._rows):
            self._rows = [self._rows[i] for i in self._cache.retain(kept)]

    def _admit(self) -> None:
        """Move waiting replies into the batch while it has room."""
        free = self._max_batch - len(self._rows)
        chosen: list[tuple[Ticket, int]] = []
        for ticket in self._waiting:
            if free == 0:
                break
            count = min(free, ticket.request.n - ticket.placed)
            chosen.append((ticket, count))
            free -= count
        if not chosen:
            return
        self._read_prompts([ticket for ticket, _ in chosen if ticket.prompt is None])
        self._cache.reserve(
            rows=sum(count for _, count in chosen),
            length=max(len(ticket.request.prompt_ids) - 1 for ticket, _ in chosen),
            growth=max(ticket.request.params.max_tokens for ticket, _ in chosen),
        )
        for ticket, count in chosen:
            self._place(ticket, count)

    def _place(self, ticket: Ticket, count: int) -> None:
        """Start ``count`` more replies of a request whose prompt has been read."""
        assert ticket.prompt is not None
        request = ticket.request
        self._cache.add(ticket.prompt, count)
        for index in range(ticket.placed, ticket.placed + count):
            stream = random.Random(f"{request.seed}/{index}")
            rule = StopRule(self._tokenizer, self._ends, request.params)
            self._rows.append(_Row(ticket, index, rule, stream, request.prompt_ids[-1]))
        ticket.placed += count
        if ticket.placed == request.n:
            ticket.prompt = None
            self._waiting.remove(ticket)

    def _read_prompts(self, tickets: Sequence[Ticket]) -> None:
        """Compute the keys and values of prompts, all but the last token of each."""
        batch: list[Ticket] = []
        for ticket in sorted(tickets, key=lambda t: len(t.request.prompt_ids)):
            length = len(ticket.request.prompt_ids) - 1
            if length == 0:
                ticket.prompt = PromptKV(0)
                continue
            if batch and length * (len(batch) + 1) > _PREFILL_TOKENS:
                self._read_batch(batch)
                batch = []
            batch.append(ticket)
        if batch:
            self._read_batch(batch)

    def _read_batch(self, tickets: Sequence[Ticket]) -> None:
        """One forward over prompts padded on the right, where causal attention never looks."""
        lengths = [len(t.request.prompt_ids) - 1 for t in tickets]
        ids = torch.zeros(len(tickets), max(lengths), dtype=torch.long)
        for row, (ticket, length) in enumerate(zip(tickets, lengths, strict=True)):
            ids[row, :length] = torch.tensor(ticket.request.prompt_ids[:-1])
        cache = PromptCache()
        # The base model, because no logits are wanted here.
        self._model.base_model(input_ids=ids.to(self._model.device), past_key_values=cache, use_cache=True)
        for row, (ticket, length) in enumerate(zip(tickets, lengths, strict=True)):
            ticket.prompt = cache.prompt(row, length)
