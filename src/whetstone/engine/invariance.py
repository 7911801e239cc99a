"""Numbers of a token that do not depend on what else is computed with it, on a CPU.

An engine computes one token of many sequences at once, the trainer many tokens of some sequences. They agree
bit for bit if every sum has the same terms in the same order. Products of at least ``ROWS`` rows in each
thread have this property, since the kernel adds up each row of the result by itself; one row uses another
kernel. Attention must be divided into blocks that begin at the first key. Everything else works on each token
alone, and on whole vectors of the processor if the work is divided among the threads evenly.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface

from whetstone.engine.sampling import log_softmax, within_supports

# The fewest rows of a matrix product in a thread.
ROWS = 4

# The keys of one product: fewer would change how a kernel divides a sum.
KEYS = 128

# The name of :func:`invariant_attention` in transformers.
INVARIANT = "whetstone_invariant"

# The values of `model_type` for which `tests/engine/test_invariance.py` shows that engine and trainer agree.
FAMILIES = frozenset({"llama", "qwen2", "qwen3"})


def supports_invariance(model: Any) -> bool:
    """Return whether the numbers of a model's tokens can be made independent of their batch: it is of a known
    family, on a CPU whose matrix products have the required property."""
    if model.device.type != "cpu" or model.config.model_type not in FAMILIES:
        return False
    layers = {
        (each.in_features, each.out_features): each for each in model.modules() if type(each) is nn.Linear
    }
    return all(has_invariant_rows(each) for each in layers.values())


def has_invariant_rows(layer: nn.Linear) -> bool:
    """Return whether whole rows of a layer's product are the same bits for any number of them."""
    step = ROWS * torch.get_num_threads()
    # torch's own random state must not change.
    values = torch.randn(4 * step, layer.in_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        values = values.to(layer.weight.dtype)
        whole = layer(values)
        return all(torch.equal(layer(values[:rows]), whole[:rows]) for rows in range(step, 4 * step, step))


@contextmanager
def attention_set_to(model: Any, name: str) -> Generator[None]:
    """Let the layers of ``model`` use the attention with this name in transformers, and restore theirs."""
    config = model.config
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def missing_rows(rows: int) -> int:
    """Return how many rows must be added, so that all threads get equal parts."""
    return -rows % (ROWS * torch.get_num_threads())


def whole_rows(values: Tensor) -> Tensor:
    """Return [rows, ...] with zeros after its rows for those that are missing."""
    missing = missing_rows(len(values))
    return torch.cat([values, values.new_zeros(missing, *values.shape[1:])]) if missing else values


def row_lengths(lengths: list[int]) -> Tensor:
    """Return the mask of :func:`invariant_attention` for rows of ``lengths`` tokens."""
    return torch.tensor(lengths)[:, None, None, None]


def invariant_log_probs(
    logits: Tensor, tokens: Sequence[int], temperatures: Sequence[float], supports: Sequence[Sequence[int]]
) -> list[float]:
    """Return the log-prob of one token a row over its support, as the trainer computes it; an empty support
    is the whole vocabulary. logits: [whole rows, vocabulary], at least as many as tokens."""
    if any(supports):
        counts = torch.tensor([len(support) for support in supports])
        ids = torch.tensor([i for support in supports for i in support])
        logits = within_supports(logits, ids, pad(counts, (0, len(logits) - len(counts))))
    found = [0.0] * len(tokens)
    for temperature in set(temperatures):
        rows = [row for row, own in enumerate(temperatures) if own == temperature]
        values, _ = log_softmax(logits, temperature)
        for row, value in zip(rows, values[rows, [tokens[row] for row in rows]].tolist(), strict=True):
            found[row] = value
    return found


def attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return attention in fp32, [n, rows, width], and the logarithms of the sums of exponentials, [n, rows].

    query: [n, rows, width]; key and value: [n, keys, width], from the first key of a sequence on; hidden:
    bool, broadcast to [n, rows, keys], the keys that a row must not attend to. Values of hidden keys must be
    finite.
    """
    rows, missing = query.shape[1], -key.shape[1] % KEYS
    query, key, value = query.float(), key.float(), value.float()
    if missing:
        key, value = pad(key, (0, 0, 0, missing)), pad(value, (0, 0, 0, missing))
        hidden = pad(hidden, (0, missing), value=True)
    more = missing_rows(rows)
    scores = (pad(query, (0, 0, 0, more)) @ key.transpose(1, 2))[:, :rows].mul_(scale)
    scores.masked_fill_(hidden, -torch.inf)
    peak = scores.amax(-1, keepdim=True)
    # Whole rows are multiplied, but their exponentials would be wasted.
    shares = pad(scores.sub_(peak).exp_(), (0, 0, 0, more))
    out = shares[..., :KEYS] @ value[:, :KEYS]
    total = shares[:, :rows, :KEYS].sum(-1)
    for first in range(KEYS, key.shape[1], KEYS):
        block = slice(first, first + KEYS)
        out += shares[..., block] @ value[:, block]
        total += shares[:, :rows, block].sum(-1)
    return out[:, :rows] / total[..., None], peak[..., 0] + total.log()


def invariant_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface for the engine.

    query: [rows, heads, tokens, width]; key and value: [rows or fewer, shared heads, columns, width].
    attention_mask: of :func:`row_lengths`, the tokens of each row that has keys, from the first column on.
    Rows beyond them get zeros. Returns [rows, tokens, heads, width].
    """
    lengths = attention_mask[:, 0, 0, 0]
    used, tokens = len(lengths), query.shape[2]
    last = lengths[:, None] - tokens + torch.arange(tokens)
    places = torch.arange(key.shape[2])
    hidden = places > last[..., None]
    if sliding_window is not None:
        hidden = hidden | (places <= last[..., None] - sliding_window)
    shared, group = key.shape[1], query.shape[1] // key.shape[1]
    out = attend(
        query[:used].reshape(used * shared, group * tokens, -1),
        key.flatten(0, 1),
        value.flatten(0, 1),
        hidden.repeat_interleave(shared, 0).repeat(1, group, 1),
        query.shape[-1] ** -0.5 if scaling is None else scaling,
    )[0]
    result = query.new_zeros(len(query), tokens, query.shape[1], value.shape[-1])
    result[:used] = out.view(used, shared * group, tokens, -1).transpose(1, 2).to(result.dtype)
    return result, None


AttentionInterface.register(INVARIANT, invariant_attention)
