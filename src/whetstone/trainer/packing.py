"""Packing of prompts and replies into rows, and of rows into micro-batches.

``shared_prefix``: a row is a prompt once, then several of its replies side by side. Position ids
restart after the prompt for every reply, and a reply sees the prompt and its own past only, so each
reply gets the numbers it would get alone while the prompt is computed once for the row.
``padded``: a row is a prompt and one reply, for models that cannot take such a mask.

A reply's last token predicts nothing, so it is never part of the input. Padding stands at the right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["shared_prefix", "padded"]

MAX_SHARED_ROW = 8192
"""Longest shared row. The attention mask is dense, and its memory grows with the square of this."""


@dataclass(frozen=True)
class Prompted:
    """Replies (token ids) to one prompt. Replies may be empty; the prompt may not."""

    prompt_ids: Sequence[int]
    replies: Sequence[Sequence[int]]


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass takes. B rows of length L, predicting t reply tokens.

    attention_mask: bool, [B, 1, L, L] (query, key) in the shared layout, [B, L] in the padded one.
    predictors: [t], where in the flattened [B * L] hidden states each token is predicted.
    targets: [t], the predicted token ids.
    tokens: [t], their places in the flat order of all reply tokens given to :func:`pack`.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor
    predictors: Tensor
    targets: Tensor
    tokens: Tensor

    def to(self, device: torch.device) -> MicroBatch:
        """The same micro-batch on ``device``."""
        return MicroBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class _Reply:
    """A reply with at least one token, and the flat place of its first token.

    Its first ``skip`` tokens are there to be seen only: another row predicts them.
    """

    ids: Sequence[int]
    first: int
    skip: int = 0


@dataclass(frozen=True)
class _Row:
    prompt_ids: Sequence[int]
    replies: list[_Reply]

    @property
    def length(self) -> int:
        return _row_length(self.prompt_ids, self.replies)


def pack(
    groups: Sequence[Prompted],
    *,
    micro_batch_tokens: int,
    layout: Layout,
    break_even: float = float("inf"),
    switch: int | None = None,
) -> list[MicroBatch]:
    """Pack all replies into micro-batches of at most ``micro_batch_tokens`` input tokens, padding included.

    A row that is longer than the limit by itself (one reply to a long prompt) gets a micro-batch of its
    own. ``break_even`` is the row length at which attention costs as much as all else (see
    :func:`whetstone.trainer.forward.attention_break_even`); a group is split over the number of rows
    that costs least. The flat order of tokens is that of ``groups``, their replies, and their tokens.

    switch: tokens before a predicted one beyond which the model uses other rope frequencies (see
    :class:`whetstone.engine.architecture.RopeLimits`). A reply that passes it stands in two rows, once up to
    there and once whole, each predicting its part; no micro-batch holds rows of both kinds.
    """
    limit = min(micro_batch_tokens, MAX_SHARED_ROW)
    short_rows: list[_Row] = []
    long_rows: list[_Row] = []
    first = 0
    for group in groups:
        short: list[_Reply] = []
        long: list[_Reply] = []
        for ids in group.replies:
            cut = len(ids) if switch is None else max(0, switch - len(group.prompt_ids) + 1)
            if ids[:cut]:
                short.append(_Reply(ids[:cut], first))
            if ids[cut:]:
                long.append(_Reply(ids, first, skip=cut))
            first += len(ids)
        for rows, replies in ((short_rows, short), (long_rows, long)):
            if layout == "padded":
                rows += [_Row(group.prompt_ids, [reply]) for reply in replies]
            elif replies:
                rows += [_Row(group.prompt_ids, part) for part in _split(group, replies, limit, break_even)]
    parts = _gather(short_rows, micro_batch_tokens) + _gather(long_rows, micro_batch_tokens)
    return [_tensors(part, layout) for part in parts]


def _row_length(prompt_ids: Sequence[int], replies: Sequence[_Reply]) -> int:
    return len(prompt_ids) + sum(len(r.ids) - 1 for r in replies)


def _split(group: Prompted, replies: list[_Reply], limit: int, break_even: float) -> list[list[_Reply]]:
    """Share the replies over rows so that computing costs least, each row within ``limit`` where possible.

    More rows repeat the prompt, fewer rows attend over longer ones, so every number of rows is tried.
    """
    best: list[list[_Reply]] = []
    best_cost = float("inf")
    prompt = len(group.prompt_ids)
    answers = _row_length(group.prompt_ids, replies) - prompt
    for count in range(1, len(replies) + 1):
        parts = _fill(group.prompt_ids, replies, min(limit, prompt + math.ceil(answers / count)))
        lengths = [_row_length(group.prompt_ids, part) for part in parts]
        cost = sum(length * (1.0 + length / break_even) for length in lengths)
        if cost < best_cost:
            best, best_cost = parts, cost
    return best


def _fill(prompt_ids: Sequence[int], replies: list[_Reply], limit: int) -> list[list[_Reply]]:
    """Rows in order, each taking replies until the next one would pass ``limit``; at least one each."""
    parts: list[list[_Reply]] = []
    length = 0
    for reply in replies:
        added = len(reply.ids) - 1
        if parts and length + added <= limit:
            parts[-1].append(reply)
            length += added
        else:
            parts.append([reply])
            length = len(prompt_ids) + added
    return parts


def _gather(rows: list[_Row], limit: int) -> list[list[_Row]]:
    """Rows of similar length together, so that padding is short; ``limit`` tokens at most, if not one row."""
    parts: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        # The first row of a part is its longest, so it sets the padded length.
        if parts and (len(parts[-1]) + 1) * parts[-1][0].length <= limit:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _tensors(rows: list[_Row], layout: Layout) -> MicroBatch:
    """Lay the rows out, padded at the right to the longest."""
    length = max(row.length for row in rows)
    input_ids = torch.zeros(len(rows), length, dtype=torch.long)
    position_ids = torch.zeros(len(rows), length, dtype=torch.long)
    # Whose token it is: 0 the prompt's, j the j-th reply's, -1 padding.
    owner = torch.full((len(rows), length), -1, dtype=torch.long)
    predictors: list[Tensor] = []
    for index, row in enumerate(rows):
        prompt = len(row.prompt_ids)
        input_ids[index, :prompt] = torch.tensor(row.prompt_ids, dtype=torch.long)
        position_ids[index, :prompt] = torch.arange(prompt)
        owner[index, :prompt] = 0
        start = prompt
        for number, reply in enumerate(row.replies, 1):
            seen = len(reply.ids) - 1
            input_ids[index, start : start + seen] = torch.tensor(reply.ids[:-1], dtype=torch.long)
            position_ids[index, start : start + seen] = torch.arange(prompt, prompt + seen)
            owner[index, start : start + seen] = number
            first = index * length + prompt - 1
            places = torch.cat([torch.tensor([first]), torch.arange(seen) + index * length + start])
            predictors.append(places[reply.skip :])
            start += seen
    replies = [reply for row in rows for reply in row.replies]
    return MicroBatch(
        input_ids=input_ids,
        position_ids=position_ids,
        attention_mask=_shared_mask(owner) if layout == "shared_prefix" else owner >= 0,
        predictors=torch.cat(predictors),
        targets=torch.cat([torch.tensor(reply.ids[reply.skip :], dtype=torch.long) for reply in replies]),
        tokens=torch.cat([torch.arange(reply.skip, len(reply.ids)) + reply.first for reply in replies]),
    )


def _shared_mask(owner: Tensor) -> Tensor:
    """[B, L] owners → [B, 1, L, L]: a token sees the prompt and its own reply, up to itself.

    Padding sees the prompt too: a query that sees nothing would turn into NaN.
    """
    length = owner.shape[1]
    past = torch.ones(length, length, dtype=torch.bool).tril()
    key, query = owner[:, None, :], owner[:, :, None]
    return (past & ((key == 0) | (key == query)))[:, None]
