"""Keys and values of running replies in blocks of fixed size, at addresses that do not change.

A block holds ``BLOCK`` tokens of one reply, or of a prompt whose replies share it. Each reply has a list of
blocks. So a reply can end, and another begin, without moving what the others have stored, and one captured or
compiled step serves all batches. Block 0 belongs to no reply: rows without a reply write there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache

from whetstone.engine.kv_cache import PromptKV

BLOCK = 32


def blocks_for(tokens: int) -> int:
    """Return how many blocks hold that many tokens."""
    return -(-tokens // BLOCK)


class BlockPool(Cache):
    """Blocks of all layers, as the cache of a model whose batch is one new token of each row.

    count: the blocks that replies may use. like: a prompt whose keys and values have the shapes (but for the
        length), dtype and device of all.

    ``table`` ([rows, blocks], the blocks of each row in order) and ``places`` ([rows], the cell of its newest
    token) must be set before a step.
    """

    table: Tensor
    places: Tensor

    def __init__(self, count: int, like: PromptKV) -> None:
        super().__init__(layers=[])
        self.count = count
        self._free = list(range(count, 0, -1))
        self._uses: Counter[int] = Counter()
        self._layers = {
            index: tuple(
                each[index].new_zeros((count + 1, BLOCK, each[index].shape[0], each[index].shape[2]))
                for each in (like.keys, like.values)
            )
            for index in like.keys
        }

    @property
    def bytes(self) -> int:
        """The size of its tensors."""
        return sum(each.nbytes for pair in self._layers.values() for each in pair)

    @property
    def free(self) -> int:
        """The number of blocks that no reply uses."""
        return len(self._free)

    # Called by the model during a step.

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the newest token's keys and values ([rows, kv_heads, 1, head_dim]); return those of the
        blocks in the table: [rows, kv_heads, blocks * BLOCK, head_dim]."""
        keys, values = self._layers[layer_idx]
        return self._write(keys, key_states), self._write(values, value_states)

    def _write(self, cells: Tensor, newest: Tensor) -> Tensor:
        rows, blocks = self.table.shape
        cells.view(-1, *cells.shape[2:]).index_copy_(0, self.places, newest[:, :, 0])
        found = cells.index_select(0, self.table.reshape(-1))
        return found.view(rows, blocks * BLOCK, *cells.shape[2:]).transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions and masks are given to the model."""
        return 0

    # Called between steps.

    def allocate(self, count: int) -> list[int]:
        """Take blocks for a reply. Admission ensures that there are enough."""
        return [self._free.pop() for _ in range(count)]

    def release(self, blocks: Sequence[int]) -> None:
        """Give back the blocks of a reply. Those of a prompt are free when its last reply has ended."""
        for block in blocks:
            self._uses[block] -= 1
            if self._uses[block] <= 0:
                del self._uses[block]
                self._free.append(block)

    def add_prompt(self, prompt: PromptKV, rows: int) -> list[list[int]]:
        """Store a prompt for ``rows`` replies, and return the blocks of each.

        Replies share the blocks that the prompt fills. Each has its own copy of the last one.
        """
        whole, rest = divmod(prompt.length, BLOCK)
        shared = self.allocate(whole)
        self._uses.update(dict.fromkeys(shared, rows))
        own = self.allocate(rows) if rest else []
        if prompt.length:
            device = next(iter(prompt.keys.values())).device
            source = torch.tensor([*range(whole), *[whole] * len(own)]).to(device)
            target = torch.tensor([*shared, *own]).to(device)
            for index, pair in self._layers.items():
                for cells, stored in zip(pair, (prompt.keys[index], prompt.values[index]), strict=True):
                    padded = pad(stored, (0, 0, 0, -prompt.length % BLOCK)).transpose(0, 1)
                    cells.index_copy_(0, target, padded.reshape(-1, *cells.shape[1:])[source])
        return [[*shared, *own[row : row + 1]] for row in range(rows)]

    def grow(self, count: int) -> None:
        """Add blocks that replies may use, up to ``count``."""
        self._free = [*range(count, self.count, -1), *self._free]
        for index, pair in self._layers.items():
            self._layers[index] = tuple(
                torch.cat([each, each.new_zeros((count - self.count, *each.shape[1:]))]) for each in pair
            )
        self.count = count
