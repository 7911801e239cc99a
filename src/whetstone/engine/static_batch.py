"""A batch whose step has fixed shapes and addresses, so that a device can replay it without the host.

Each row has a place in one table on the device: its length, its newest token, how it is sampled, uniform
numbers for its next tokens, and its blocks of the :class:`BlockPool`. A step reads the table, computes and
samples a token for each row, and writes it back into the table. So the next step needs nothing from the host.
The host uploads only rows that changed: new ones, ended ones, those that need a further block, and all of
them once in ``UNIFORMS`` steps.

On an accelerator, the host reads the tokens of a step after it has launched the next one. A row that has
ended by then computes one token too many, which is dropped. On CUDA, each size of step is captured as a graph
when it is used for the second time.

Positions and blocks of a row depend on nothing but its own tokens, and the streams of uniform numbers are
those of ``EagerBatch``. So replies are the same, up to the rounding of attention.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from whetstone.engine.batches import DrawnToken, Row
from whetstone.engine.block_pool import BLOCK, BlockPool, blocks_for
from whetstone.engine.decode_attention import DECODE, decode_masks
from whetstone.engine.expert_routing import ExpertRouters
from whetstone.engine.host_copies import pinned, start_copy
from whetstone.engine.invariance import attention_set_to
from whetstone.engine.kv_cache import PromptKV
from whetstone.engine.sampling import NOT_FINITE, RowSampling, draw_rows, kept_ids

# The steps for which a row's uniform numbers are uploaded at once.
UNIFORMS = 16
_FEW_ROWS = 8

# Columns of the table, of 4 bytes each; see ``_layout``.
_ROW, _LENGTH, _TOKEN, _ACTIVE, _TOP_K, _GREEDY, _TEMPERATURE = range(7)
_TOP_P = slice(8, 10)
_UNIFORMS = slice(10, 10 + 2 * UNIFORMS)
_BLOCKS = _UNIFORMS.stop


def _layout(blocks: int) -> np.dtype[Any]:
    """Return a row of the table. ``token`` is -1 for one that the device has sampled itself."""
    numbers = [(name, "i4") for name in ("row", "length", "token", "active", "top_k", "greedy")]
    floats = [("temperature", "f4"), ("unused", "f4"), ("top_p", "f8"), ("uniforms", "f8", UNIFORMS)]
    # An even number of columns, so that those of 8 bytes are aligned in each row.
    return np.dtype([*numbers, *floats, ("blocks", "i4", blocks + blocks % 2)])


@dataclass(frozen=True)
class StepShape:
    """What is fixed in a step: how many rows and blocks of each it reads, and which sampling it needs."""

    rows: int
    blocks: int
    truncates: bool
    greedy: bool


@dataclass
class StepTensors:
    """What a step reads and writes.

    table: int32, [rows, columns]; tokens: int64, [rows], the newest token of each row; tick: int64, [1], the
    place of the next uniform number.
    """

    table: Tensor
    tokens: Tensor
    tick: Tensor


Step = Callable[[], tuple[Tensor, Tensor]]


class StepRunner(Protocol):
    """Executes the steps of one batch."""

    def run(self, shape: StepShape, step: Step) -> tuple[Tensor, Tensor]:
        """Execute a step. Its results may be overwritten by the next one."""
        ...

    def forget(self) -> None:
        """Drop what was prepared for steps, because the tensors of the batch have moved."""
        ...


def static_step(model: Any, pool: BlockPool, tensors: StepTensors, shape: StepShape) -> tuple[Tensor, Tensor]:
    """Sample a token for each row, and prepare the next step. It never waits for the device.

    Returns float64 [rows, 2], tokens and log-probs, and the weights of the tokens that could be drawn
    ([rows, vocabulary]).
    """
    table = tensors.table[: shape.rows]
    lengths = table[:, _LENGTH].long()
    given = table[:, _TOKEN]
    newest = torch.where(given >= 0, given, tensors.tokens[: shape.rows])
    pool.table = table[:, _BLOCKS : _BLOCKS + shape.blocks].long()
    pool.places = pool.table.gather(1, lengths[:, None] // BLOCK)[:, 0] * BLOCK + lengths % BLOCK
    logits = model(
        input_ids=newest[:, None],
        attention_mask=decode_masks(model.config, lengths, shape.blocks * BLOCK, model.dtype),
        position_ids=lengths[:, None],
        past_key_values=pool,
        use_cache=True,
    ).logits[:, -1]
    sampling = RowSampling(
        table[:, _TEMPERATURE].view(torch.float32),
        table[:, _GREEDY] > 0,
        table[:, _TOP_K].long(),
        table[:, _TOP_P].view(torch.float64)[:, 0],
    )
    uniforms = table[:, _UNIFORMS].view(torch.float64).index_select(1, tensors.tick)[:, 0]
    tokens, logprobs, weights = draw_rows(
        logits, sampling, uniforms, truncates=shape.truncates, greedy=shape.greedy
    )
    tensors.tokens[: shape.rows] = tokens
    table[:, _LENGTH] += table[:, _ACTIVE]
    table[:, _TOKEN] = -1
    tensors.tick.copy_((tensors.tick + 1) % UNIFORMS)
    return torch.stack([tokens.double(), logprobs], dim=1), weights


@dataclass
class _Launched:
    """A step whose tokens the host has not read. ``drawn``: its rows, by their places in the table."""

    drawn: list[tuple[int, Row]]
    version: int
    values: Tensor
    weights: Tensor
    finished: Any


class StaticBatch:
    """A RunningBatch of a model with at most ``cells`` tokens in its cache.

    one_token: keys and values of the shapes that each token has. ahead: the steps that may be launched
        before the tokens of an earlier one are read.
    """

    def __init__(
        self, model: Any, cells: int, one_token: PromptKV, runner: StepRunner, *, ahead: int
    ) -> None:
        self.rows: list[Row] = []
        self._model = model
        self._one_token = one_token
        self._most_blocks = cells // BLOCK
        self._runner = runner
        self._ahead = ahead
        self._places: dict[Row, int] = {}
        self._blocks: dict[Row, list[int]] = {}
        self._unused: list[int] = []
        self._launched: deque[_Launched] = deque()
        self._changed: set[int] = set()
        self._tick = 0
        self._columns = 0
        self._host = np.zeros(0, _layout(0))
        self._pool: BlockPool | None = None
        self._tensors: StepTensors | None = None

    @property
    def bytes(self) -> int:
        """See RunningBatch."""
        return self._pool.bytes if self._pool else 0

    @property
    def tokens(self) -> int:
        """See RunningBatch."""
        return int(self._host["length"].sum())

    def max_rows(self, reach: int) -> int:
        """See RunningBatch."""
        return self._most_blocks // blocks_for(reach)

    def reserve(self, rows: int, length: int, growth: int) -> None:
        """See RunningBatch. Space that must grow is doubled, because graphs are captured again."""
        rows += len(self.rows)
        blocks = blocks_for(length + 1 + growth)
        places, columns = len(self._host), max(self._columns, blocks)
        if rows > places:
            places = max(_FEW_ROWS, rows, 2 * places)
        wanted = min(self._most_blocks, places * columns)
        if self._pool is None:
            self._pool = BlockPool(wanted, self._one_token)
        elif self._pool.count < wanted:
            self._pool.grow(wanted)
            self._runner.forget()
        if places > len(self._host) or columns > self._columns:
            self._grow_table(places, columns)

    def _grow_table(self, places: int, columns: int) -> None:
        old, before = self._host, self._tensors
        self._host = np.zeros(places, _layout(columns))
        self._host["row"], self._host["token"] = np.arange(places), -1
        self._host["temperature"], self._host["top_p"] = 1.0, 1.0
        for name in old.dtype.names or ():
            target = self._host[name][: len(old)]
            (target[:, : self._columns] if name == "blocks" else target)[...] = old[name]
        self._columns = self._host["blocks"].shape[-1]
        for place in range(len(old), places):
            heapq.heappush(self._unused, place)
        self._runner.forget()
        device = self._model.device
        self._tensors = StepTensors(
            torch.zeros(places, self._host.dtype.itemsize // 4, dtype=torch.int32, device=device),
            torch.zeros(places, dtype=torch.long, device=device),
            torch.full((1,), self._tick, dtype=torch.long, device=device),
        )
        if before is not None:
            self._tensors.tokens[: len(old)] = before.tokens
        self._changed.update(range(places))

    def add(self, prompt: PromptKV, rows: Sequence[Row]) -> None:
        """See RunningBatch."""
        assert self._pool is not None
        for row, blocks in zip(rows, self._pool.add_prompt(prompt, len(rows)), strict=True):
            place = heapq.heappop(self._unused)
            params = row.ticket.request.params
            self._places[row], self._blocks[row] = place, blocks
            entry = self._host[place]
            entry["length"], entry["token"], entry["active"] = prompt.length, row.newest, 1
            entry["top_k"], entry["top_p"] = params.top_k, params.top_p
            entry["greedy"], entry["temperature"] = params.temperature == 0, params.temperature or 1.0
            entry["blocks"][: len(blocks)] = blocks
            if self._tick:  # otherwise all rows get new ones before the next step
                entry["uniforms"][self._tick :] = _uniforms(row, UNIFORMS - self._tick)
            self._changed.add(place)
        self.rows += rows

    def keep(self, kept: list[int]) -> None:
        """See RunningBatch."""
        if len(kept) == len(self.rows):
            return
        staying = [self.rows[i] for i in kept]
        for row in set(self.rows).difference(staying):
            assert self._pool is not None
            self._pool.release(self._blocks.pop(row))
            place = self._places.pop(row)
            heapq.heappush(self._unused, place)
            entry = self._host[place]
            entry["length"], entry["active"], entry["blocks"] = 0, 0, 0
            self._changed.add(place)
        self.rows = staying

    def draw(self, version: int, routers: ExpertRouters | None) -> list[DrawnToken]:
        """See RunningBatch. Raises FloatingPointError if logits are not finite."""
        self._launched.append(self._launch(version))
        # The weights of a step, from which its supports are read, are those of the last one launched.
        ahead = 0 if any(_wants_support(row) for row in self.rows) else self._ahead
        drawn: list[DrawnToken] = []
        while len(self._launched) > ahead:
            drawn += self._read(self._launched.popleft())
        return drawn

    def _launch(self, version: int) -> _Launched:
        assert self._pool is not None
        assert self._tensors is not None
        self._take_blocks()
        if self._tick == 0:  # draw uniform numbers for the next steps
            for row, place in self._places.items():
                self._host["uniforms"][place] = _uniforms(row, UNIFORMS)
                self._changed.add(place)
        self._upload()
        shape = self._shape()
        step = partial(static_step, self._model, self._pool, self._tensors, shape)
        with attention_set_to(self._model, DECODE):
            values, weights = self._runner.run(shape, step)
        self._host["length"] += self._host["active"]
        self._tick = (self._tick + 1) % UNIFORMS
        copied, finished = start_copy(values)
        return _Launched([(self._places[row], row) for row in self.rows], version, copied, weights, finished)

    def _take_blocks(self) -> None:
        """Give each row the block of its newest token."""
        host = self._host
        assert self._pool is not None
        for row in self.rows:
            place, blocks = self._places[row], self._blocks[row]
            if host["length"][place] >= len(blocks) * BLOCK:
                [block] = self._pool.allocate(1)
                host["blocks"][place, len(blocks)] = block
                blocks.append(block)
                self._changed.add(place)

    def _upload(self) -> None:
        """Write the rows that have changed into the table of the device."""
        if not self._changed:
            return
        assert self._tensors is not None
        changed = self._host[sorted(self._changed)]
        self._host["token"] = -1
        self._changed.clear()
        device = self._model.device
        numbers = torch.from_numpy(changed.view(np.int32).reshape(len(changed), -1))
        rows = pinned(numbers, device).to(device, non_blocking=device.type == "cuda")
        self._tensors.table.index_copy_(0, rows[:, _ROW].long(), rows)

    def _shape(self) -> StepShape:
        """Return the smallest shape for the present rows. Sizes are powers of two: few shapes occur."""
        params = [row.ticket.request.params for row in self.rows]
        return StepShape(
            rows=min(_power_of_two(max(self._places.values()) + 1), len(self._host)),
            blocks=min(_power_of_two(max(map(len, self._blocks.values()))), self._columns),
            truncates=any(p.truncates for p in params),
            greedy=any(p.temperature == 0 for p in params),
        )

    def _read(self, launched: _Launched) -> list[DrawnToken]:
        if launched.finished is not None:
            launched.finished.synchronize()
        values = launched.values.tolist()
        current = [(place, row) for place, row in launched.drawn if row in self._places]
        if not all(math.isfinite(values[place][1]) for place, _ in current):
            raise FloatingPointError(NOT_FINITE)
        supports: dict[Row, list[int]] = {}
        wanting = [(place, row) for place, row in current if _wants_support(row)]
        if wanting:
            chosen = launched.weights[torch.tensor([place for place, _ in wanting]).to(self._model.device)]
            supports = dict(zip([row for _, row in wanting], kept_ids(chosen), strict=True))
        return [
            DrawnToken(row, int(values[place][0]), values[place][1], supports.get(row, []), launched.version)
            for place, row in current
        ]


def _wants_support(row: Row) -> bool:
    return row.ticket.request.supports and row.ticket.request.params.truncates


def _uniforms(row: Row, count: int) -> list[float]:
    return [row.stream.random() for _ in range(count)]


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
