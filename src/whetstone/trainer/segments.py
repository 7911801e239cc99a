"""Which tokens of a flat row attend to which: runs, and their division into pieces of attention.

A row contains many sequences. A *run* is a range of the row in which a token attends to the run's own past,
to itself, and to one whole earlier range, its prefix. A prompt is a run without a prefix, and each of its
replies is a run whose prefix is the prompt. No mask over the row is ever built: the layers get the table of
runs, from which the pieces of attention are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")

# Runs of up to this many tokens are computed in one padded batch; longer ones use the machine well alone.
_MAX_BATCHED_RUN = 512

# The largest factor by which padding may lengthen a batch: copies and empty work against fewer calls.
_MAX_PADDING = 1.25

# The most scores at once if they are materialized: 32 MiB in fp32.
_MAX_SCORES = 2**23


class Segment(NamedTuple):
    """``length`` tokens from ``start``, which also attend to the ``prefix_length`` tokens from ``prefix``."""

    start: int
    length: int
    prefix: int = 0
    prefix_length: int = 0

    @property
    def reach(self) -> int:
        """The number of tokens that its last token attends to."""
        return self.prefix_length + self.length


class PrefixBlock(NamedTuple):
    """Adjacent runs, ``length`` tokens from ``start``, that share a prefix."""

    start: int
    length: int
    prefix: int
    prefix_length: int


class TokenBlock(NamedTuple):
    """Tokens ``first`` to ``last`` of a run, and the keys that some of them attend to, starting at
    ``keys_from``.

    ``keys_from`` counts from the beginning of the prefix, like a position. ``window``: the most tokens that a
    token attends to, including itself.
    """

    run: Segment
    first: int
    last: int
    keys_from: int
    window: int | None

    def keys(self, tensor: Tensor) -> Tensor:
        """Return the part of ``tensor`` ([heads, tokens, width]) that the block attends to: [heads, seen,
        width]."""
        run = self.run
        own = max(0, self.keys_from - run.prefix_length)
        tail = tensor[:, run.start + own : run.start + self.last]
        if self.keys_from >= run.prefix_length:
            return tail
        prefix = tensor[:, run.prefix + self.keys_from : run.prefix + run.prefix_length]
        return torch.cat([prefix, tail], 1)

    def add_keys(self, tensor: Tensor, values: Tensor) -> None:
        """Add ``values`` to the part of ``tensor`` that :meth:`keys` returns."""
        run = self.run
        before = max(0, run.prefix_length - self.keys_from)
        own = max(0, self.keys_from - run.prefix_length)
        if before:
            tensor[:, run.prefix + self.keys_from : run.prefix + run.prefix_length] += values[:, :before]
        tensor[:, run.start + own : run.start + self.last] += values[:, before:]

    def hidden(self, device: torch.device) -> Tensor:
        """Bool, [tokens of the block, seen]: the keys that a token must not attend to."""
        query = torch.arange(self.first, self.last, device=device)[:, None] + self.run.prefix_length
        key = torch.arange(self.keys_from, self.run.prefix_length + self.last, device=device)
        hidden = key > query
        return hidden if self.window is None else hidden | (key <= query - self.window)


@dataclass(frozen=True)
class PaddedBlock:
    """Runs whose attention to themselves is computed in one call, padded on the right, where causal attention
    never looks.

    places: [runs * width], the row position of each token; padding repeats the run's last token.
    real: [tokens], the indices of ``places`` that are no padding.
    """

    runs: list[Segment]
    width: int
    places: Tensor
    real: Tensor


@dataclass(frozen=True)
class AttentionPieces:
    """A row's attention: pieces that need no mask, and blocks (with a mask of their own size)."""

    padded: list[PaddedBlock]
    prefixed: list[PrefixBlock]
    blocks: list[TokenBlock]


@dataclass(frozen=True)
class AttentionPlan:
    """The attention of a layer over a row.

    table: the runs (:func:`run_table`). window: the most tokens that a token attends to, including itself;
    None for all. scale: the factor of the scores. cap: their bound, 0 for none.
    """

    table: Tensor
    window: int | None
    scale: float
    cap: float

    @property
    def runs(self) -> list[Segment]:
        """The runs of the row."""
        return [Segment(*row) for row in self.table[0, 0].tolist()]

    def computes_on_cpu(self, query: Tensor) -> bool:
        """Return whether the kernels of the CPU compute ``query``, or would compute it; see
        :func:`plan_for_cpu`."""
        return query.device.type == "cpu" or bool(getattr(self.table, "for_cpu", False))

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return the result of ``make``, which is computed once for all layers with this table and window."""
        # transformers passes only the mask tensor to its layers, so the cache must be on it.
        keeper = cast(Any, self.table)
        if not hasattr(keeper, "made"):
            keeper.made = {}
        cache = cast(dict[object, Any], keeper.made)
        if (key, self.window) not in cache:
            cache[key, self.window] = make()
        return cast(T, cache[key, self.window])


def run_table(runs: Sequence[Segment]) -> Tensor:
    """Return runs as a four-dimensional attention mask, which transformers passes to its layers unchanged."""
    return torch.tensor(runs, dtype=torch.long)[None, None]


def plan_for_cpu(table: Tensor) -> None:
    """Let meta tensors with this table of runs be computed as on a CPU, to count the memory that takes."""
    cast(Any, table).for_cpu = True


def attention_pieces(plan: AttentionPlan, *, scores_per_token: int | None) -> AttentionPieces:
    """Divide the attention of a plan into pieces.

    scores_per_token: the number of heads if all scores must be materialized, so that everything is divided
    into blocks; None if only windows need blocks.
    """
    return plan.cached(scores_per_token, lambda: _cut(plan.runs, plan.window, scores_per_token))


def _cut(runs: list[Segment], window: int | None, scores_per_token: int | None) -> AttentionPieces:
    def whole(run: Segment) -> bool:
        return scores_per_token is None and (window is None or run.reach <= window)

    plain = [run for run in runs if whole(run)]
    blocks = [block for run in runs if not whole(run) for block in _blocks(run, window, scores_per_token)]
    return AttentionPieces(_padded_blocks(plain), prefix_blocks(plain), blocks)


def _padded_blocks(runs: Sequence[Segment]) -> list[PaddedBlock]:
    """Group runs of similar length."""
    parts: list[list[Segment]] = []
    tokens = 0
    for run in sorted(runs, key=lambda run: -run.length):
        if parts and parts[-1][0].length <= _MAX_BATCHED_RUN:
            padded = parts[-1][0].length * (len(parts[-1]) + 1)
            if padded <= _MAX_PADDING * (tokens + run.length):
                parts[-1].append(run)
                tokens += run.length
                continue
        parts.append([run])
        tokens = run.length
    return [_padded(part) for part in parts]


def _padded(runs: list[Segment]) -> PaddedBlock:
    starts, lengths = (torch.tensor(column)[:, None] for column in list(zip(*runs, strict=True))[:2])
    columns = torch.arange(runs[0].length)[None]
    places = starts + torch.minimum(columns, lengths - 1)
    real = (columns < lengths).flatten().nonzero().squeeze(1)
    return PaddedBlock(runs, runs[0].length, places.flatten(), real)


def prefix_blocks(runs: Sequence[Segment]) -> list[PrefixBlock]:
    """Return the runs that have a prefix; adjacent ones that share it are one block."""
    parts: list[PrefixBlock] = []
    for run in runs:
        if not run.prefix_length:
            continue
        last = parts[-1] if parts else None
        shares = last is not None and (last.prefix, last.prefix_length) == (run.prefix, run.prefix_length)
        if last is not None and shares and last.start + last.length == run.start:
            parts[-1] = last._replace(length=last.length + run.length)
        else:
            parts.append(PrefixBlock(run.start, run.length, run.prefix, run.prefix_length))
    return parts


def _blocks(run: Segment, window: int | None, scores_per_token: int | None) -> Iterator[TokenBlock]:
    """Yield blocks of a run that are small enough, each with its keys."""
    seen = run.reach if window is None else min(run.reach, 2 * window)
    room = _MAX_SCORES // ((scores_per_token or 1) * seen)
    size = max(16, min(room, run.length if window is None else max(window, 64)))
    for part in range(math.ceil(run.length / size)):
        first, last = part * size, min((part + 1) * size, run.length)
        reached = run.prefix_length + first + 1
        yield TokenBlock(run, first, last, 0 if window is None else max(0, reached - window), window)
