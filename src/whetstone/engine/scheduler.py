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
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from whetstone.engine.architecture import RopeLimits
from whetstone.engine.batches import EagerBatch, Row, RunningBatch, Ticket
from whetstone.engine.engine import Completion
from whetstone.engine.expert_routing import ExpertRouters
from whetstone.engine.invariance import INVARIANT, attention_set_to, missing_rows, row_lengths
from whetstone.engine.kv_cache import PromptCache, PromptKV
from whetstone.engine.out_of_memory import SAMPLING_KEYS, explain_out_of_memory
from whetstone.engine.static_batch import StaticBatch
from whetstone.engine.static_steps import step_runner, supports_static
from whetstone.engine.stopping import StopRule, end_tokens

# The tokens, padding included, of one forward pass over prompts. It bounds the memory of its activations.
PREFILL_TOKENS = 4096
# A common beginning of prompts with fewer tokens costs more as a pass of its own than it saves.
_LEAST_PREFIX = 16
# With fixed shapes, replies begin together: so many, or those that have waited for so many steps.
_ADMITTED_AT_ONCE = 8
_MOST_POSTPONED = 8


Ended = list[tuple[Ticket, Completion]]


class Scheduler:
    """The running batch of one model. Not thread-safe."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_batch: int,
        cache_bytes: int,
        rope: RopeLimits,
        invariant: bool = False,
        static: bool | None = None,
        ahead: int | None = None,
    ) -> None:
        self._model = model
        self._invariant = invariant
        if static is None:
            static = model.device.type != "cpu" and not invariant
        self._static = static and supports_static(model, rope)
        # Only an accelerator computes while the host reads.
        self._ahead = int(model.device.type != "cpu") if ahead is None else ahead
        self._tokenizer = tokenizer
        self._max_batch = max_batch
        self._rope = rope
        self._ends = end_tokens(model, tokenizer)
        self._routers: ExpertRouters | None = None
        self._waiting: deque[Ticket] = deque()
        self._postponed = 0
        read = self._read_one_token()
        self._one_token = read.prompt(0, 1, b"")
        self.token_bytes = read.bytes
        # With two batches, either may come to hold all rows, so each gets half of the memory.
        self._cells = cache_bytes // self.token_bytes // (1 if rope.switch is None else 2)
        self._clear()

    def _clear(self) -> None:
        self._short, self._long = (self._new_batch() for _ in range(2))

    def _new_batch(self) -> RunningBatch:
        if self._static:
            runner = step_runner(self._model.device)
            return StaticBatch(self._model, self._cells, self._one_token, runner, ahead=self._ahead)
        return EagerBatch(self._model, self._cells, invariant=self._invariant)

    def fits(self, ticket: Ticket) -> bool:
        """Return whether a reply to a request can run at all."""
        return self._short.max_rows(ticket.reach) > 0

    @property
    def bytes(self) -> int:
        """The size of the cache of running replies."""
        return self._short.bytes + self._long.bytes

    @property
    def busy(self) -> bool:
        """Whether any reply is running or waiting."""
        return bool(self._short.rows or self._long.rows or self._waiting)

    def add(self, ticket: Ticket) -> None:
        """Queue a request."""
        if ticket.request.routing:
            self.recorders()
        self._waiting.append(ticket)

    def recorders(self) -> ExpertRouters:
        """Return what records the experts. Raises UserError for a model without experts."""
        # Models that need no recording remain as they are.
        if self._routers is None:
            self._routers = ExpertRouters(self._model)
        return self._routers

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
        ended = [(row.ticket, row.completion("abort", self._routers)) for row in rows]
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
        rows, tokens = (sum(len(b.rows) for b in batches), sum(b.tokens for b in batches))
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

    def _draw(self, batch: RunningBatch, version: int) -> Ended:
        """Make a step of a batch, and record the tokens that it returns."""
        ended: Ended = []
        finished: set[Row] = set()
        for drawn in batch.draw(version, self._routers):
            row = drawn.row
            # A batch may compute further tokens before it knows that a reply has ended.
            if row in finished:
                continue
            if row.ticket.oldest is None:
                row.ticket.oldest = drawn.version
            row.newest = drawn.token
            row.token_ids.append(drawn.token)
            row.logprobs.append(drawn.logprob)
            row.versions.append(drawn.version)
            if drawn.support and row.ticket.request.supports:
                row.supports.append(drawn.support)
            reason = row.rule.check(row.token_ids)
            if reason is not None:
                finished.add(row)
                ended.append((row.ticket, row.completion(reason, self._routers)))
        batch.keep([i for i, row in enumerate(batch.rows) if row not in finished])
        return ended

    def _admit(self) -> None:
        """Move waiting replies into the batch while there is room."""
        chosen = self._select_waiting()
        if not chosen or self._postpones(sum(count for _, count in chosen)):
            return
        # The prompt is read once, also if its replies start at different times.
        unread = [ticket for ticket, _ in chosen if ticket.prompt is None]
        routers = self._routers if any(ticket.request.routing for ticket in unread) else None
        read = self._read([ticket.request.prompt_ids[:-1] for ticket in unread], routers)
        for ticket, prompt in zip(unread, read, strict=True):
            ticket.prompt = prompt
        for batch in (self._short, self._long):
            parts = [(t, count) for t, count in chosen if self._batch_of(t.request.prompt_ids) is batch]
            if parts:
                batch.reserve(
                    rows=sum(count for _, count in parts),
                    length=max(len(ticket.request.prompt_ids) - 1 for ticket, _ in parts),
                    growth=max(ticket.request.params.max_tokens for ticket, _ in parts),
                )
            for ticket, count in parts:
                self._start_replies(ticket, count, batch)

    def _postpones(self, replies: int) -> bool:
        """Return whether so few replies wait for more, because a pass over prompts interrupts fast steps."""
        if not self._static or not self._short.rows:
            return False
        self._postponed += 1
        if replies >= _ADMITTED_AT_ONCE or self._postponed >= _MOST_POSTPONED:
            self._postponed = 0
            return False
        return True

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
            most = min(self._max_batch, self._short.max_rows(reach))
            count = min(most - rows, ticket.request.n - ticket.started)
            # Later requests must wait too, or a long one could wait forever.
            if count <= 0:
                break
            chosen.append((ticket, count))
            rows += count
        return chosen

    @torch.inference_mode()
    def _read_one_token(self) -> PromptCache:
        """Return the keys and values of a token, whose sizes are those of any token."""
        cache = PromptCache()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self._model.device)
        self._model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
        return cache

    def _batch_of(self, prompt_ids: Sequence[int]) -> RunningBatch:
        return self._long if self._rope.is_long(len(prompt_ids)) else self._short

    def _start_replies(self, ticket: Ticket, count: int, batch: RunningBatch) -> None:
        """Start ``count`` more replies of a request whose prompt has been prefilled."""
        assert ticket.prompt is not None
        request = ticket.request
        rows: list[Row] = []
        for index in range(ticket.started, ticket.started + count):
            # Each reply has its own stream, so its tokens do not depend on when it was admitted.
            stream = random.Random(f"{request.seed}/{index}")
            rule = StopRule(self._tokenizer, self._ends, request.params)
            row = Row(ticket, index, rule, stream, request.prompt_ids[-1])
            if request.routing:
                row.experts += ticket.prompt.experts
            rows.append(row)
        batch.add(ticket.prompt, rows)
        ticket.started += count
        if ticket.started == request.n:
            ticket.prompt = None
            self._waiting.remove(ticket)

    def _move_long_rows(self) -> None:
        """Move rows that have outgrown the first set of frequencies to the batch of the second."""
        short = self._short
        moving = [i for i, row in enumerate(short.rows) if self._rope.is_long(row.length + 1)]
        if not moving:
            return
        rows = [short.rows[i] for i in moving]
        short.keep([i for i in range(len(short.rows)) if i not in moving])
        read = self._read([row.ticket.request.prompt_ids + row.token_ids[:-1] for row in rows])
        self._long.reserve(
            rows=len(rows),
            length=max(past.length for past in read),
            growth=max(row.ticket.request.params.max_tokens for row in rows),
        )
        for row, past in zip(rows, read, strict=True):
            self._long.add(past, [row])

    def _read(self, pasts: Sequence[list[int]], routers: ExpertRouters | None = None) -> list[PromptKV]:
        """Return the keys and values of sequences up to their newest token; with ``routers`` also the
        experts."""
        result = [PromptKV(0)] * len(pasts)
        batch: list[int] = []
        # Sequences of similar length need little padding.
        for place in sorted(range(len(pasts)), key=lambda i: len(pasts[i])):
            length = len(pasts[place])
            if length == 0:
                continue
            full = length * (len(batch) + 1) > PREFILL_TOKENS
            switches = (
                batch and self._rope.is_long(length + 1) and not self._rope.is_long(len(pasts[batch[0]]) + 1)
            )
            if batch and (full or switches):
                self._read_batch(batch, pasts, result, routers)
                batch = []
            batch.append(place)
        if batch:
            self._read_batch(batch, pasts, result, routers)
        return result

    def _read_batch(
        self,
        places: list[int],
        pasts: Sequence[list[int]],
        result: list[PromptKV],
        routers: ExpertRouters | None,
    ) -> None:
        """Make one forward pass over right-padded sequences; causal attention never reads the padding."""
        chosen = [pasts[place] for place in places]
        prefix = self._read_prefix(chosen, routers)
        width = self._rope.columns(max(len(past) for past in chosen))
        width += missing_rows(width) if self._invariant else 0
        ids = torch.zeros(len(places), width - prefix.length, dtype=torch.long)
        for row, past in enumerate(chosen):
            ids[row, : len(past) - prefix.length] = torch.tensor(past[prefix.length :])
        cache = PromptCache(prefix)
        # The base model is sufficient, because no logits are needed.
        read = partial(
            self._model.base_model,
            input_ids=ids.to(self._model.device),
            past_key_values=cache,
            use_cache=True,
        )
        if self._invariant:
            read.keywords["attention_mask"] = row_lengths([width] * len(places))
        with attention_set_to(self._model, INVARIANT) if self._invariant else nullcontext():
            experts = (read(), None)[1] if routers is None else routers.record(read)[1].view(*ids.shape, -1)
        for row, place in enumerate(places):
            length = len(pasts[place])
            rows = b"" if experts is None else experts[row, :length].numpy().tobytes()
            result[place] = cache.prompt(row, length, rows)

    def _read_prefix(self, pasts: Sequence[list[int]], routers: ExpertRouters | None) -> PromptKV:
        """Return the keys and values of the tokens with which all sequences begin, if it pays to read them
        once: chat templates begin every prompt with the same words."""
        # All of them begin as the first and the last in alphabetical order do.
        pairs = enumerate(zip(min(pasts), max(pasts), strict=False))
        shared = next((place for place, (one, other) in pairs if one != other), len(min(pasts)))
        # Every sequence keeps a token of its own, so that the second pass has a column for it.
        shared = min(shared, *(len(past) - 1 for past in pasts))
        # Two sets of frequencies would give the beginning the keys of a short sequence.
        if self._invariant or self._rope.switch is not None or routers is not None:
            return PromptKV(0)
        if shared < _LEAST_PREFIX or len(pasts) == 1:
            return PromptKV(0)
        result = [PromptKV(0)]
        self._read_batch([0], [pasts[0][:shared]], result, None)
        return result[0]
