"""Requests and running replies, and the batch that an eager model steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from whetstone.core.sample import FinishReason
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.expert_routing import ExpertRouters
from whetstone.engine.head_product import head_in_pieces
from whetstone.engine.invariance import (
    INVARIANT,
    attention_set_to,
    invariant_log_probs,
    row_lengths,
    whole_rows,
)
from whetstone.engine.kv_cache import BatchCache, PromptKV, StartAlignedCache
from whetstone.engine.sampling import Sampler
from whetstone.engine.stopping import StopRule


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
class Row:
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
    supports: list[list[int]] = field(default_factory=list[list[int]])
    # Those of every token that was read, if the request wants them.
    experts: bytearray = field(default_factory=bytearray)

    @property
    def length(self) -> int:
        """The tokens before the newest one, which the cache has."""
        return len(self.ticket.request.prompt_ids) - 1 + len(self.token_ids)

    def completion(self, reason: FinishReason, routers: ExpertRouters | None) -> Completion:
        """Return the reply as it is now."""
        return Completion(
            self.index,
            self.token_ids,
            self.logprobs,
            self.versions,
            reason,
            routing=routers.routing(bytes(self.experts)) if routers is not None else None,
            supports=self.supports,
        )


@dataclass(frozen=True)
class DrawnToken:
    """A token that a step has sampled for a row. ``version`` is that of the weights."""

    row: Row
    token: int
    logprob: float
    support: list[int]
    version: int


class RunningBatch(Protocol):
    """Rows that share a forward pass, and their cache."""

    rows: list[Row]

    @property
    def bytes(self) -> int:
        """The size of the cache."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens in the cache."""
        ...

    def max_rows(self, reach: int) -> int:
        """Return how many rows fit in total if the longest may grow to ``reach`` tokens."""
        ...

    def reserve(self, rows: int, length: int, growth: int) -> None:
        """Allocate space for ``rows`` more rows of at most ``length`` tokens that may grow by ``growth``."""
        ...

    def add(self, prompt: PromptKV, rows: Sequence[Row]) -> None:
        """Append rows that begin with the same prompt. ``reserve`` must have allocated the space."""
        ...

    def keep(self, kept: list[int]) -> None:
        """Drop all rows except ``kept`` (ascending)."""
        ...

    def draw(self, version: int, routers: ExpertRouters | None) -> list[DrawnToken]:
        """Make a step for all rows with weights of this version, and return the tokens of a finished step.

        A batch that does not wait for its device returns those of an earlier step.
        """
        ...


class EagerBatch:
    """The batch of a model that runs operation by operation; ``cache.lengths[i]`` is the length of row i.

    ``invariant``: see ``invariance.py``.
    """

    def __init__(self, model: Any, cells: int, *, invariant: bool) -> None:
        self.rows: list[Row] = []
        self._model = model
        self._sampler = Sampler()
        self._invariant = invariant
        self.cache = (StartAlignedCache if invariant else BatchCache)(cells)
        self.max_rows = self.cache.max_rows
        self.reserve = self.cache.reserve

    @property
    def bytes(self) -> int:
        """See RunningBatch."""
        return self.cache.bytes

    @property
    def tokens(self) -> int:
        """See RunningBatch."""
        return sum(self.cache.lengths)

    def add(self, prompt: PromptKV, rows: Sequence[Row]) -> None:
        """See RunningBatch."""
        self.cache.add(prompt, len(rows))
        self.rows += rows

    def keep(self, kept: list[int]) -> None:
        """See RunningBatch."""
        if len(kept) < len(self.rows):
            self.rows = [self.rows[i] for i in self.cache.retain(kept)]

    def draw(self, version: int, routers: ExpertRouters | None) -> list[DrawnToken]:
        """See RunningBatch. The tokens are those of this step, one for each row."""
        model = self._model
        with attention_set_to(model, INVARIANT) if self._invariant else head_in_pieces(model):
            logits = self._forward(routers)
        params = [row.ticket.request.params for row in self.rows]
        uniforms = [row.stream.random() for row in self.rows]
        tokens, logprobs, supports = self._sampler.draw(logits[: len(params)], params, uniforms)
        if self._invariant:
            temperatures = [p.temperature or 1.0 for p in params]
            logprobs = invariant_log_probs(logits, tokens, temperatures, supports)
        drawn = zip(self.rows, tokens, logprobs, supports, strict=True)
        return [DrawnToken(*each, version) for each in drawn]

    def _forward(self, routers: ExpertRouters | None) -> torch.Tensor:
        """Return the logits after the newest token of each row: [rows, vocabulary]. Rows whose requests want
        it get the experts of that token. ``invariant`` batches return further rows after them."""
        wanting = [i for i, row in enumerate(self.rows) if row.ticket.request.routing]
        lengths = torch.tensor(self.cache.lengths)
        ids = torch.tensor([[row.newest] for row in self.rows])
        positions = lengths[:, None]
        if self._invariant:
            mask = row_lengths([length + 1 for length in self.cache.lengths])
            ids, positions = whole_rows(ids), whole_rows(positions)
        else:
            # Rows are right-aligned in the cache: a shorter one begins later.
            mask = torch.arange(self.cache.width + 1) >= (self.cache.width - lengths)[:, None]
        model = self._model
        step = partial(
            model,
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            position_ids=positions.to(model.device),
            past_key_values=self.cache,
            use_cache=True,
        )
        output, experts = (step(), None) if routers is None or not wanting else routers.record(step)
        if experts is not None:
            for i in wanting:
                self.rows[i].experts += experts[i].numpy().tobytes()
        self.cache.advance()
        return output.logits[:, -1]
