"""Packs prompts and replies into micro-batches.

``shared_prefix``: one flat row of many groups without padding. It contains each prompt once, followed by its
replies. Position ids restart after the prompt for every reply, and a reply attends to the prompt and its own
past only (``segments.py``). So each reply gets the numbers that it would get alone, while the prompt is
computed once. ``padded``: rows of a prompt and one reply, for models with their own attention code.

A reply's last token predicts nothing, so it is not part of the input. Padding is on the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor

from whetstone.trainer.segments import Segment, run_table

Layout = Literal["shared_prefix", "padded"]


@dataclass(frozen=True)
class PromptReplies:
    """Replies (token ids) to one prompt. Replies may be empty; the prompt may not.

    routing: the experts of the prompt's tokens, and those of each reply's tokens except the last: [tokens,
    layers, k] each. All groups have them, or none.
    """

    prompt_ids: Sequence[int]
    replies: Sequence[Sequence[int]]
    routing: tuple[Tensor, Sequence[Tensor]] | None = None

    def part(self, start: int, end: int) -> PromptReplies:
        """Return some of the replies."""
        routing = self.routing and (self.routing[0], self.routing[1][start:end])
        return replace(self, replies=self.replies[start:end], routing=routing)


@dataclass(frozen=True)
class MicroBatch:
    """The input of one forward pass: B rows of length L that predict t reply tokens.

    attention_mask: a table of runs in the shared layout, where B is 1; bool, [B, L], in the padded one.
    predictors: [t], the positions in the flattened [B * L] hidden states that predict each token.
    targets: [t], the predicted token ids.
    tokens: [t], their positions in the flat order of all reply tokens given to :func:`pack`.
    experts: [layers, B * L, k], the experts that process each token; None: the model chooses.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor
    predictors: Tensor
    targets: Tensor
    tokens: Tensor
    experts: Tensor | None = None

    def to(self, device: torch.device) -> MicroBatch:
        """Return a copy on ``device``, except for a table of runs, which is read on the CPU."""
        moved = {
            name: value if value is None else value.to(device)
            for name, value in cast("dict[str, Tensor | None]", vars(self)).items()
        }
        if self.attention_mask.dim() == 4:
            moved["attention_mask"] = self.attention_mask
        return replace(self, **moved)

    def without_targets(self) -> MicroBatch:
        """Return a copy that predicts nothing, for a rank that must take part in a pass of other ranks."""
        return replace(self, predictors=self.predictors[:0], targets=self.targets[:0], tokens=self.tokens[:0])

    def only_predicting(self, written: Tensor) -> MicroBatch:
        """Return a copy that only predicts the ``written`` tokens (bool, in the flat order).

        The flat order then only has the written tokens; the others are still inputs.
        """
        kept = written[self.tokens]
        places = written.cumsum(0) - 1
        return replace(
            self,
            predictors=self.predictors[kept],
            targets=self.targets[kept],
            tokens=places[self.tokens[kept]],
        )

    def with_positions(self, places: Tensor) -> MicroBatch:
        """Return a copy for a flat order in which token i is at ``places[i]``."""
        return replace(self, tokens=places[self.tokens])


@dataclass(frozen=True)
class _Reply:
    """A reply with at least one token, and the flat position of its first token.

    Its first ``skip`` tokens are only inputs: another row predicts them. ``experts``: those of its inputs.
    """

    ids: Sequence[int]
    first: int
    skip: int = 0
    experts: Tensor | None = None


@dataclass(frozen=True)
class _Row:
    """A prompt and some of its replies. ``experts``: those of the prompt."""

    prompt_ids: Sequence[int]
    replies: list[_Reply]
    experts: Tensor | None = None

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + sum(len(r.ids) - 1 for r in self.replies)

    def runs(self, start: int) -> list[Segment]:
        """Return the runs of the row when it begins at ``start``.

        A single reply forms one run with its prompt. Several replies share the prompt's run: their attention
        costs the same as in separate rows, and everything else of the prompt is computed once.
        """
        prompt = len(self.prompt_ids)
        # One run needs no attention across runs.
        if len(self.replies) == 1:
            return [Segment(start, self.length)]
        runs = [Segment(start, prompt)]
        for reply in self.replies:
            if len(reply.ids) > 1:
                last = runs[-1]
                runs.append(Segment(last.start + last.length, len(reply.ids) - 1, start, prompt))
        return runs


def pack(
    groups: Sequence[PromptReplies],
    *,
    micro_batch_tokens: int,
    layout: Layout,
    switch: int | None = None,
    padding: Callable[[int], int] = lambda _: 0,
) -> list[MicroBatch]:
    """Pack all replies into micro-batches of at most ``micro_batch_tokens`` input tokens, padding included.

    A single reply that exceeds the limit with its prompt gets its own micro-batch; a group that exceeds it is
    split, and each part has the prompt. The flat order of tokens is that of ``groups``, their replies, and
    their tokens.

    switch: the number of preceding tokens beyond which the model uses other rope frequencies (see
    :class:`whetstone.engine.architecture.RopeLimits`). A reply that passes it is in two rows, once up to that
    length and once whole, and each row predicts its part. No micro-batch has rows of both kinds.
    padding: returns how many tokens of padding a flat row of so many tokens gets.
    """
    short_rows: list[_Row] = []
    long_rows: list[_Row] = []
    first = 0
    for group in groups:
        short: list[_Reply] = []
        long: list[_Reply] = []
        of_prompt, of_replies = group.routing or (None, [None] * len(group.replies))
        for ids, experts in zip(group.replies, of_replies, strict=True):
            cut = len(ids) if switch is None else max(0, switch - len(group.prompt_ids) + 1)
            if ids[:cut]:
                short.append(_Reply(ids[:cut], first, experts=experts))
            if ids[cut:]:
                long.append(_Reply(ids, first, skip=cut, experts=experts))
            first += len(ids)
        for rows, replies in ((short_rows, short), (long_rows, long)):
            if layout == "padded":
                rows += [_Row(group.prompt_ids, [reply], of_prompt) for reply in replies]
            else:
                rows += _rows(group.prompt_ids, replies, micro_batch_tokens, of_prompt)
    lay_out, gather = (
        (_padded_batch, _by_length) if layout == "padded" else (partial(_flat_batch, padding), _first_fit)
    )
    parts = gather(short_rows, micro_batch_tokens) + gather(long_rows, micro_batch_tokens)
    return [lay_out(part) for part in parts]


def _rows(prompt_ids: Sequence[int], replies: list[_Reply], limit: int, experts: Tensor | None) -> list[_Row]:
    """Return the fewest rows within ``limit`` tokens, in order; each has at least one reply."""
    rows: list[_Row] = []
    length = 0
    for reply in replies:
        added = len(reply.ids) - 1
        if rows and length + added <= limit:
            rows[-1].replies.append(reply)
            length += added
        else:
            rows.append(_Row(prompt_ids, [reply], experts))
            length = len(prompt_ids) + added
    return rows


def _first_fit(rows: list[_Row], limit: int) -> list[list[_Row]]:
    """Distribute rows to few parts of at most ``limit`` tokens (or one row), longest first."""
    parts: list[tuple[int, list[_Row]]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        for place, (length, part) in enumerate(parts):
            if length + row.length <= limit:
                part.append(row)
                parts[place] = (length + row.length, part)
                break
        else:
            parts.append((row.length, [row]))
    return [part for _, part in parts]


def _by_length(rows: list[_Row], limit: int) -> list[list[_Row]]:
    """Group rows of similar length, so that padding is short; at most ``limit`` tokens (or one row)."""
    parts: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        # The first row of a part is its longest, so it determines the padded length.
        if parts and (len(parts[-1]) + 1) * parts[-1][0].length <= limit:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _flat_batch(padding: Callable[[int], int], rows: list[_Row]) -> MicroBatch:
    """Lay out rows in sequence: [1, sum of their tokens, and perhaps padding]."""
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + row.length)
    runs = [run for row, start in zip(rows, starts, strict=False) for run in row.runs(start)]
    tokens = starts.pop()
    added = padding(tokens)
    if added:
        runs.append(Segment(tokens, added))
    return _tensors(rows, starts, (1, tokens + added), run_table(runs))


def _padded_batch(rows: list[_Row]) -> MicroBatch:
    """Lay out rows as a batch, padded on the right to the longest."""
    length = max(row.length for row in rows)
    mask = torch.arange(length)[None] < torch.tensor([[row.length] for row in rows])
    return _tensors(rows, [index * length for index in range(len(rows))], (len(rows), length), mask)


def _tensors(rows: list[_Row], starts: list[int], shape: tuple[int, int], mask: Tensor) -> MicroBatch:
    """Return a micro-batch of ``shape``; each row begins at its start in the flat order."""
    input_ids = torch.zeros(shape[0] * shape[1], dtype=torch.long)
    position_ids = torch.zeros(shape[0] * shape[1], dtype=torch.long)
    predictors: list[Tensor] = []
    for row, first in zip(rows, starts, strict=True):
        prompt = len(row.prompt_ids)
        start = first + prompt
        input_ids[first:start] = torch.tensor(row.prompt_ids, dtype=torch.long)
        position_ids[first:start] = torch.arange(prompt)
        for reply in row.replies:
            seen = len(reply.ids) - 1
            input_ids[start : start + seen] = torch.tensor(reply.ids[:-1], dtype=torch.long)
            position_ids[start : start + seen] = torch.arange(prompt, prompt + seen)
            places = torch.cat([torch.tensor([first + prompt - 1]), torch.arange(start, start + seen)])
            predictors.append(places[reply.skip :])
            start += seen
    replies = [reply for row in rows for reply in row.replies]
    return MicroBatch(
        input_ids=input_ids.view(shape),
        position_ids=position_ids.view(shape),
        attention_mask=mask,
        predictors=torch.cat(predictors),
        targets=torch.cat([torch.tensor(reply.ids[reply.skip :], dtype=torch.long) for reply in replies]),
        tokens=torch.cat([torch.arange(reply.skip, len(reply.ids)) + reply.first for reply in replies]),
        experts=_experts(rows, starts, len(input_ids)),
    )


def _experts(rows: list[_Row], starts: list[int], tokens: int) -> Tensor | None:
    """Return the experts of all tokens, zeros for padding: [layers, tokens, k]."""
    first = rows[0].experts
    if first is None:
        return None
    result = first.new_zeros(tokens, *first.shape[1:])
    for row, start in zip(rows, starts, strict=True):
        if row.experts is None:
            continue
        place = start + len(row.prompt_ids)
        result[start:place] = row.experts
        for reply in row.replies:
            seen = len(reply.ids) - 1
            if reply.experts is not None:
                result[place : place + seen] = reply.experts[:seen]
            place += seen
    return result.transpose(0, 1).contiguous()
