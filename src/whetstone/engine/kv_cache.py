"""The key-value cache of a running batch, and that of prompts during prefill.

Rows of the batch are aligned at their newest token: all end at the same column, and the left columns of
shorter rows are masked. So a step writes one column for all rows with a plain slice, column distance equals
token distance (as sliding-window masks need), and the model's own mask code works unchanged. The used columns
form a window that moves right as tokens are added. At the end of the tensors it is moved back, or the tensors
grow, so the cost of copying is amortized.

One column left of the window is masked for every row. Without it a batch of equal lengths has nothing to
mask. transformers then drops the mask and lets torch share key heads among query heads, which is about five
times slower on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

# Columns are allocated in multiples of this. A large one leaves much of the memory unused by short replies.
_BLOCK = 16
_FEW_SLOTS = 8
# Masked columns on the left of the window; see the module docstring.
_SPARE = 1
# Columns that are reserved for later tokens. Replies are often much shorter than their limit.
_MAX_AHEAD = 512


@dataclass(frozen=True)
class PromptKV:
    """Keys and values of one prompt, by layer: each [kv_heads, length, head_dim].

    ``experts``: the rows of ``ExpertRouters.record``; empty if they were not recorded.
    """

    length: int
    keys: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    values: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    experts: bytes = b""


class PromptCache(Cache):
    """Collects the keys and values of right-padded prompts in one causal forward pass.

    ``prefix``: the tokens before the first column, which all prompts share and which have been read.
    """

    def __init__(self, prefix: PromptKV | None = None) -> None:
        super().__init__(layers=[])
        self._prefix = prefix or PromptKV(0)
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    # Called by the model during the pass.

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's keys and values ([prompts, kv_heads, columns, head_dim]); return them after those
        of the prefix."""
        if self._prefix.length:
            key_states = _after(self._prefix.keys[layer_idx], key_states)
            value_states = _after(self._prefix.values[layer_idx], value_states)
        self.keys[layer_idx] = key_states
        self.values[layer_idx] = value_states
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of columns before the pass."""
        return self._prefix.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the number of columns that a mask must cover, and the first of them."""
        return self._prefix.length + query_length, 0

    @property
    def bytes(self) -> int:
        """The size of all stored tensors."""
        return sum(t.nbytes for kept in (self.keys, self.values) for t in kept.values())

    def prompt(self, row: int, length: int, experts: bytes) -> PromptKV:
        """Return the first ``length`` columns of one prompt, and the experts that processed it."""
        return PromptKV(
            length,
            {layer: k[row, :, :length] for layer, k in self.keys.items()},
            {layer: v[row, :, :length] for layer, v in self.values.items()},
            experts,
        )


def _after(first: Tensor, rest: Tensor) -> Tensor:
    """Return ``first`` ([kv_heads, columns, head_dim]) followed by each row of ``rest``."""
    return torch.cat([first.expand(len(rest), *first.shape), rest], dim=2)


class BatchCache(Cache):
    """Keys and values of every running row, by layer: [slots, kv_heads, columns, head_dim].

    Rows 0 to len(lengths) - 1 are in use; row r has the columns from ``end - lengths[r]`` to ``end``. Slots
    times columns never exceed ``cells``, if admissions respect :meth:`max_rows`.
    """

    _block = _BLOCK

    def __init__(self, cells: int) -> None:
        super().__init__(layers=[])
        self.cells = cells
        self.lengths: list[int] = []
        # Columns in use: the length of the longest row, and the spare one.
        self.width = _SPARE
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._slots = 0
        self._columns = 0
        self._end = 0

    @property
    def bytes(self) -> int:
        """The size of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def tensors(self) -> list[Tensor]:
        """Return the keys and values of all layers."""
        return [*self._keys.values(), *self._values.values()]

    # Called by the model during a step.

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the newest token's keys and values ([rows, kv_heads, 1, head_dim]); return all columns
        in use, as views: [rows, kv_heads, width + 1, head_dim]."""
        rows, end = len(self.lengths), self._end
        keys, values = self._layer(layer_idx, key_states, value_states)
        keys[:rows, :, end : end + 1] = key_states
        values[:rows, :, end : end + 1] = value_states
        window = slice(end - self.width, end + 1)
        return keys[:rows, :, window], values[:rows, :, window]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of columns before the newest token."""
        return self.width

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Return the column of the newest token within the window."""
        return self.width

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the number of columns that a mask must cover, and the first of them."""
        return self.width + query_length, 0

    # Called by the scheduler between steps.

    def max_rows(self, reach: int) -> int:
        """Return how many rows fit in total if the longest may grow to ``reach`` tokens."""
        return self.cells // self._round_up(reach + _SPARE)

    def reserve(self, rows: int, length: int, growth: int) -> None:
        """Allocate space for ``rows`` more rows of at most ``length`` tokens that may grow by ``growth``."""
        rows += len(self.lengths)
        slots = self._slots
        if rows > slots:
            # Doubling keeps the cost of copying proportional to the number of rows.
            slots = max(_FEW_SLOTS, rows, 2 * slots)
        width = max(self.width, length + _SPARE)
        if not self.lengths or slots > self._slots or width > self._end or self._end == self._columns:
            wanted = self._round_up(width + min(growth, _MAX_AHEAD))
            self._resize(rows, slots, max(wanted, self._columns), width)

    def add(self, prompt: PromptKV, rows: int) -> None:
        """Append ``rows`` rows that begin with the same prompt. ``reserve`` must have allocated the space."""
        first, last = len(self.lengths), len(self.lengths) + rows
        columns = slice(self._end - prompt.length, self._end)
        for index, prompt_keys in prompt.keys.items():
            keys, values = self._layer(index, prompt_keys, prompt.values[index])
            keys[first:last, :, columns] = prompt_keys
            values[first:last, :, columns] = prompt.values[index]
        self._set_lengths(self.lengths + [prompt.length] * rows)

    def advance(self) -> None:
        """Count the column that the model has just written, and ensure that a free one follows."""
        self._end += 1
        self._set_lengths([length + 1 for length in self.lengths])
        if self._end == self._columns:
            # Moving the window back pays if a quarter of the columns is free. Otherwise the tensors grow.
            roomy = 4 * self.width <= 3 * self._columns
            columns = self._columns if roomy else self._round_up(3 * self.width // 2)
            self._resize(len(self.lengths), self._slots, columns, self.width)

    def retain(self, kept: Sequence[int]) -> list[int]:
        """Drop all rows except ``kept`` (ascending). Returns, for each new row, its old index.

        Rows from the end fill the gaps, so only as many rows are copied as there are gaps.
        """
        count = len(kept)
        staying = {row for row in kept if row < count}
        holes = [row for row in range(count) if row not in staying]
        movers = [row for row in kept if row >= count]
        order = list(range(count))
        for hole, mover in zip(holes, movers, strict=True):
            order[hole] = mover
        window = slice(self._end - self.width, self._end)
        if holes and self._keys:
            # One copy of the numbers to the device, instead of one for each layer.
            device = next(iter(self._keys.values())).device
            into, moved = (torch.tensor(rows).to(device) for rows in (holes, movers))
            for tensors in (self._keys, self._values):
                for tensor in tensors.values():
                    tensor[into, :, window] = tensor[moved, :, window]
        self._set_lengths([self.lengths[row] for row in order])
        return order

    def final_columns(self, rows: int, length: int, growth: int) -> int:
        """Return the columns of ``rows`` rows of ``length`` tokens after each has grown by ``growth``."""
        most = self.cells // rows // self._block * self._block
        columns = self._round_up(length + _SPARE + min(growth, _MAX_AHEAD))
        while columns <= length + growth + _SPARE:
            columns = self._round_up(3 * columns // 2)
        return max(self._round_up(length + growth + _SPARE), min(columns, most))

    def _round_up(self, columns: int) -> int:
        """Return the next multiple of the block size that leaves at least one column free."""
        return (columns // self._block + 1) * self._block

    def _set_lengths(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.width = max(lengths, default=0) + _SPARE

    def _layer(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tensors of a layer, created on first use with the shape of its input.

        They start as zeros, because a masked column still enters a product with weight 0, and 0 times NaN is
        NaN.
        """
        if index not in self._keys:
            for tensors, like in ((self._keys, keys), (self._values, values)):
                shape = (self._slots, like.shape[-3], self._columns, like.shape[-1])
                tensors[index] = like.new_zeros(shape)
        return self._keys[index], self._values[index]

    def _resize(self, rows: int, slots: int, columns: int, end: int) -> None:
        """Move the window's end to column ``end`` of ``slots`` rows and ``columns`` columns, limited by
        ``cells``.

        There are always ``rows`` rows and a free column after ``end``: admission has ensured that they fit.
        """
        most = self.cells // rows // self._block * self._block
        columns = max(self._round_up(end), min(columns, most))
        slots = max(rows, min(slots, self.cells // columns))
        self._move(slots, columns, end)

    def _move(self, slots: int, columns: int, end: int) -> None:
        """Move the window's end to column ``end`` of tensors with ``slots`` rows and ``columns`` columns."""
        rows = len(self.lengths)
        old = slice(self._end - self.width, self._end)
        new = slice(end - self.width, end)
        resized = (slots, columns) != (self._slots, self._columns)
        for tensors in (self._keys, self._values):
            for index, tensor in tensors.items():
                live = tensor[:rows, :, old]
                if resized:
                    tensor = tensor.new_zeros((slots, tensor.shape[1], columns, tensor.shape[3]))
                    tensors[index] = tensor
                else:
                    # Source and destination may overlap.
                    live = live.clone()
                tensor[:rows, :, new] = live
        self._slots, self._columns, self._end = slots, columns, end


class StartAlignedCache(BatchCache):
    """A BatchCache for ``invariance.py``: rows have the columns from 0 to ``lengths[r]``."""

    # ``invariance.KEYS``, which must divide what is read.
    _block = 128

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the newest token's keys and values ([rows or more, kv_heads, 1, head_dim]); return whole
        blocks of columns, as views: [rows, kv_heads, columns, head_dim]. Those not in use are finite."""
        rows = len(self.lengths)
        seen = slice(0, -(-self.width // self._block) * self._block)
        found: list[Tensor] = []
        states = (key_states, value_states)
        for tensor, newest in zip(self._layer(layer_idx, *states), states, strict=True):
            tensor[torch.arange(rows), :, self._places] = newest[:rows, :, 0]
            found.append(tensor[:rows, :, seen])
        return found[0], found[1]

    def add(self, prompt: PromptKV, rows: int) -> None:
        """See BatchCache."""
        first, last = len(self.lengths), len(self.lengths) + rows
        for index, prompt_keys in prompt.keys.items():
            keys, values = self._layer(index, prompt_keys, prompt.values[index])
            keys[first:last, :, : prompt.length] = prompt_keys
            values[first:last, :, : prompt.length] = prompt.values[index]
        self._set_lengths(self.lengths + [prompt.length] * rows)

    def _set_lengths(self, lengths: list[int]) -> None:
        super()._set_lengths(lengths)
        # The window of all rows begins at column 0; its spare column is the last one.
        self._end = self.width
        self._places = torch.tensor(lengths)

    def _move(self, slots: int, columns: int, end: int) -> None:
        super()._move(slots, columns, self.width)
