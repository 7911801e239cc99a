"""Packing of prompts and replies into micro-batches.

``shared_prefix``: one flat row of many groups, without padding. A prompt stands there once, then its replies
one behind another. Position ids restart after the prompt for every reply, and a reply sees the prompt and
its own past only (``runs.py``), so each reply gets the numbers it would get alone while the prompt is
computed once.
``padded``: rows of a prompt and one reply, for models whose attention is their own.

A reply's last token predicts nothing, so it is never part of the input. Padding stands at the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from whetstone.trainer.runs import Run, run_table

Layout = Literal["shared_prefix", "padded"]


@dataclass(frozen=True)
class Prompted:
    """Replies (token ids) to one prompt. Replies may be empty; the prompt may not."""

    prompt_ids: Sequence[int]
    replies: Sequence[Sequence[int]]


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass takes. B rows of length L, predicting t reply tokens.

    attention_mask: a table of runs in the shared layout, where B is 1; bool, [B, L], in the padded one.
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
        """The same micro-batch on ``device``, but for a table of runs, which is read on the CPU."""
        moved = {name: value.to(device) for name, value in vars(self).items()}
        if self.attention_mask.dim() == 4:
            moved["attention_mask"] = self.attention_mask
        return MicroBatch(**moved)

    def idle(self) -> MicroBatch:
        """One that predicts nothing: for a rank that must take part in a pass of others."""
        return replace(self, predictors=self.predictors[:0], targets=self.targets[:0], tokens=self.tokens[:0])

    def predicting(self, written: Tensor) -> MicroBatch:
        """The same where only the ``written`` ones of all tokens (bool, in the flat order) are predicted.

        The flat order is then that of the written ones alone; the others are still read.
        """
        kept = written[self.tokens]
        places = written.cumsum(0) - 1
        return replace(
            self,
            predictors=self.predictors[kept],
            targets=self.targets[kept],
            tokens=places[self.tokens[kept]],
        )

    def placed(self, places: Tensor) -> MicroBatch:
        """The same for a flat order in which token i stands at ``places[i]``."""
        return replace(self, tokens=places[self.tokens])


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
    """A prompt and replies to it, as they stand side by side."""

    prompt_ids: Sequence[int]
    replies: list[_Reply]

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + sum(len(r.ids) - 1 for r in self.replies)

    def runs(self, start: int) -> list[Run]:
        """The runs of the row when it stands at ``start``.

        One reply is one run with its prompt. Several share it: their pieces of attention are the same work
        as in rows of their own, and all else of the prompt is done once, so that is always cheaper.
        """
        prompt = len(self.prompt_ids)
        if len(self.replies) == 1:
            return [Run(start, self.length)]
        runs = [Run(start, prompt)]
        for reply in self.replies:
            if len(reply.ids) > 1:
                last = runs[-1]
                runs.append(Run(last.start + last.length, len(reply.ids) - 1, start, prompt))
        return runs


def pack(
    groups: Sequence[Prompted], *, micro_batch_tokens: int, layout: Layout, switch: int | None = None
) -> list[MicroBatch]:
    """Pack all replies into micro-batches of at most ``micro_batch_tokens`` input tokens, padding included.

    One reply to a long prompt that is longer than the limit by itself gets a micro-batch of its own; a group
    that is longer stands in several, each with the prompt. The flat order of tokens is that of ``groups``,
    their replies, and their tokens.

    switch: tokens before a predicted one beyond which the model uses other rope frequencies (see
    :class:`whetstone.engine.architecture.RopeLimits`). A reply that passes it stands in two rows, once up to
    there and once whole, each predicting its part; no micro-batch holds rows of both kinds.
    """
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
            else:
                rows += _rows(group.prompt_ids, replies, micro_batch_tokens)
    lay_out, gather = (_padded, _similar) if layout == "padded" else (_flat, _fitting)
    parts = gather(short_rows, micro_batch_tokens) + gather(long_rows, micro_batch_tokens)
    return [lay_out(part) for part in parts]


def _rows(prompt_ids: Sequence[int], replies: list[_Reply], limit: int) -> list[_Row]:
    """The fewest rows within ``limit`` tokens, in order; at least one reply each."""
    rows: list[_Row] = []
    length = 0
    for reply in replies:
        added = len(reply.ids) - 1
        if rows and length + added <= limit:
            rows[-1].replies.append(reply)
            length += added
        else:
            rows.append(_Row(prompt_ids, [reply]))
            length = len(prompt_ids) + added
    return rows


def _fitting(rows: list[_Row], limit: int) -> list[list[_Row]]:
    """Rows into few parts of ``limit`` tokens at most, if not one row: the longest first, where it fits."""
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


def _similar(rows: list[_Row], limit: int) -> list[list[_Row]]:
    """Rows of similar length together, so that padding is short; ``limit`` tokens at most, if not one row."""
    parts: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        # The first row of a part is its longest, so it sets the padded length.
        if parts and (len(parts[-1]) + 1) * parts[-1][0].length <= limit:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _flat(rows: list[_Row]) -> MicroBatch:
    """Lay rows one behind another: [1, their tokens]."""
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + row.length)
    runs = [run for row, start in zip(rows, starts, strict=False) for run in row.runs(start)]
    return _tensors(rows, starts[:-1], (1, starts[-1]), run_table(runs))


def _padded(rows: list[_Row]) -> MicroBatch:
    """Lay rows one above another, padded at the right to the longest."""
    length = max(row.length for row in rows)
    mask = torch.arange(length)[None] < torch.tensor([[row.length] for row in rows])
    return _tensors(rows, [index * length for index in range(len(rows))], (len(rows), length), mask)


def _tensors(rows: list[_Row], starts: list[int], shape: tuple[int, int], mask: Tensor) -> MicroBatch:
    """A micro-batch of ``shape``, in whose flat order each row begins at its start."""
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
    )
