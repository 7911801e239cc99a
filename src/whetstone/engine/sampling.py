"""Samples tokens from logits by inverting the cumulative distribution.

One uniform number decides a token, so a sample only depends on its own stream, not on the other rows of its
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from whetstone.core.settings import Sampling

# The vocabulary entries of a partial sum. Only the block that is hit is searched one by one.
_BLOCK = 256
# Top-p usually ends within this many tokens. Otherwise the whole row is sorted.
_CANDIDATES = 1024
NOT_FINITE = "the model gave logits that are not finite"
# Below any logit, and finite at any temperature: an infinite one times a probability of 0 is not a number.
_EXCLUDED = -1e30


def log_softmax(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return logarithms and values of softmax(logits / temperature), [rows, vocabulary] each, in fp32
    (float64 for float64)."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.to(dtype, copy=True)
    if temperature != 1.0:
        scores.div_(temperature)
    # Subtracting the maximum keeps exp from overflowing.
    scores.sub_(scores.amax(dim=-1, keepdim=True))
    probabilities = scores.exp()
    total = probabilities.sum(-1, keepdim=True)
    probabilities.div_(total)
    return scores.sub_(total.log()), probabilities


def within_supports(logits: Tensor, ids: Tensor, counts: Tensor) -> Tensor:
    """Return logits ([rows, vocabulary]) whose softmax is over the support of each row.

    ids: [n], the supports one after another; counts: [rows], their lengths. A row without ids keeps the whole
    vocabulary.
    """
    rows = torch.arange(len(logits), device=logits.device).repeat_interleave(counts)
    excluded = (counts > 0)[:, None].repeat(1, logits.shape[1])
    excluded[rows, ids] = False
    return logits.masked_fill(excluded, _EXCLUDED)


@dataclass(frozen=True)
class RowSampling:
    """How the token of each row is drawn: [rows] each, on the device of the logits.

    temperatures: float32, 1 for greedy rows. greedy: bool. top_k: int64, 0 keeps all. top_p: float64.
    """

    temperatures: Tensor
    greedy: Tensor
    top_k: Tensor
    top_p: Tensor


def row_sampling(params: Sequence[Sampling], device: torch.device) -> RowSampling:
    """Return the sampling of a batch whose rows have these parameters."""
    return RowSampling(
        torch.tensor([p.temperature or 1.0 for p in params], device=device),
        torch.tensor([p.temperature == 0 for p in params], device=device),
        torch.tensor([p.top_k for p in params], device=device),
        torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
    )


def draw_rows(
    logits: Tensor, sampling: RowSampling, uniforms: Tensor, *, truncates: bool, greedy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a token for each row without waiting for the device; see Sampler.draw.

    ``truncates`` and ``greedy`` say whether any row is truncated or takes the most likely token.
    Returns tokens ([rows], int64), log-probs ([rows], float64; not finite where the logits are not) and the
    weights of the tokens that may be drawn ([rows, vocabulary], 0 for all others).
    """
    rows, vocabulary = logits.shape
    temperatures = sampling.temperatures[:, None]
    peak = logits.amax(-1, keepdim=True).float()
    weights = (logits.float() - peak).div_(temperatures).exp_()
    if truncates:
        least = _least_kept(weights, sampling, weights.sort(descending=True).values)
        weights = weights.masked_fill(weights < least, 0)
    weights = pad(weights, (0, -vocabulary % _BLOCK))
    sums = weights.view(rows, -1, _BLOCK).sum(-1).double()
    tokens = _invert(weights, sums, uniforms)
    if greedy:
        tokens = torch.where(sampling.greedy, logits.argmax(-1), tokens)
    logprobs = _log_probs(logits, tokens, peak, temperatures, sums.sum(-1))
    return tokens, logprobs, weights[:, :vocabulary]


class Sampler:
    """Draws one token a row, and waits for the device.

    It keeps its work space between calls; one call at a time.
    """

    def __init__(self) -> None:
        self._space = torch.empty(0)

    def draw(
        self, logits: Tensor, params: Sequence[Sampling], uniforms: Sequence[float]
    ) -> tuple[list[int], list[float], list[list[int]]]:
        """Draw a token for each row of ``logits`` ([rows, vocabulary], any float dtype).

        uniforms: one number in [0, 1) a row; unused where the temperature is 0.
        Returns token ids, their natural log-probabilities under softmax(logits / temperature) over the tokens
        that top-k and top-p keep (temperature 1 where it is 0), and the ids of these; none where nothing is
        truncated. Tokens that tie with the last one that top-k or top-p keeps are kept as well, so the order
        of equal logits decides nothing.
        Raises FloatingPointError when a row's logits are not finite.
        """
        temperatures = torch.tensor([[p.temperature or 1.0] for p in params], device=logits.device)
        weights, peak = self._weights(logits, temperatures)
        sums = weights.view(len(params), -1, _BLOCK).sum(-1).double()
        totals = sums.sum(-1)
        if not bool(torch.isfinite(totals).all()):
            raise FloatingPointError(NOT_FINITE)
        cut = [row for row, p in enumerate(params) if p.truncates]
        supports: list[list[int]] = [[] for _ in params]
        if cut:
            chosen = weights[cut]
            chosen[chosen < _thresholds(chosen, [params[row] for row in cut])] = 0
            weights[cut] = chosen
            sums[cut] = chosen.view(len(cut), -1, _BLOCK).sum(-1).double()
            totals[cut] = sums[cut].sum(-1)
            for row, kept in zip(cut, kept_ids(chosen), strict=True):
                supports[row] = kept
        tokens = _invert(weights, sums, torch.tensor(uniforms, dtype=torch.float64, device=logits.device))
        greedy = [row for row, p in enumerate(params) if p.temperature == 0]
        if greedy:
            tokens[greedy] = logits[greedy].argmax(-1)
        logprobs = _log_probs(logits, tokens, peak, temperatures, totals)
        return tokens.tolist(), logprobs.tolist(), supports

    def _weights(self, logits: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
        """exp((logits - peak) / temperature) in float32, padded with zeros to whole blocks; the peaks.

        Shapes: [rows, blocks * _BLOCK] and [rows, 1]. The result lives in the sampler's work space.
        """
        rows, vocabulary = logits.shape
        padded = -(-vocabulary // _BLOCK) * _BLOCK
        if (
            self._space.shape[0] < rows
            or self._space.shape[1:] != (padded,)
            or (self._space.device != logits.device)
        ):
            self._space = torch.zeros(rows, padded, device=logits.device)
        weights = self._space[:rows]
        peak = logits.amax(-1, keepdim=True).float()
        used = weights[:, :vocabulary]
        used.copy_(logits)
        # Without the peak, exp would overflow for large logits.
        used.sub_(peak)
        if bool((temperatures != 1).any()):
            used.div_(temperatures)
        used.exp_()
        return weights, peak


def _log_probs(logits: Tensor, tokens: Tensor, peak: Tensor, temperatures: Tensor, totals: Tensor) -> Tensor:
    """Return the log-probs of tokens, [rows], float64. totals: [rows], the sums of the weights that may be
    drawn; peak and temperatures: [rows, 1]."""
    drawn = logits.gather(-1, tokens[:, None]).float()
    return ((drawn - peak) / temperatures).squeeze(-1).double() - totals.log()


def kept_ids(weights: Tensor) -> list[list[int]]:
    """Return the ids of the tokens of each row that may be drawn. weights: [rows, vocabulary]."""
    rows, ids = weights.nonzero(as_tuple=True)
    counts = rows.bincount(minlength=len(weights)).tolist()
    return [kept.tolist() for kept in ids.split(counts)]


def _thresholds(weights: Tensor, params: Sequence[Sampling]) -> Tensor:
    """The least weight that each row's top-k and then top-p keep: [rows, 1]."""
    # Selecting a few candidates is much faster than sorting the vocabulary, and they are rarely too few.
    count = min(weights.shape[1], max(_CANDIDATES, *(p.top_k for p in params)))
    ranked = weights.topk(count, dim=-1).values
    if count < weights.shape[1]:
        shares = [p.top_p if p.top_p < 1 and not p.top_k else 0.0 for p in params]
        wanted = weights.sum(-1, dtype=torch.float64) * torch.tensor(shares, device=weights.device)
        if bool((ranked.sum(-1, dtype=torch.float64) < wanted).any()):
            ranked = weights.sort(descending=True).values
    return _least_kept(weights, row_sampling(params, weights.device), ranked)


def _least_kept(weights: Tensor, sampling: RowSampling, ranked: Tensor) -> Tensor:
    """The least weight that each row's top-k and then top-p keep: [rows, 1]; 0 keeps all.

    ranked: the largest weights of each row in descending order, at least those that are kept.
    """
    top_k, top_p = sampling.top_k[:, None], sampling.top_p[:, None]
    last = torch.where(top_k > 0, top_k, ranked.shape[1]).clamp(max=ranked.shape[1]) - 1
    cumulative = ranked.cumsum(-1, dtype=torch.float64)
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    mass = top_p * torch.where(top_k > 0, cumulative.gather(-1, last), total)
    last = torch.where(top_p < 1, torch.minimum((cumulative < mass).sum(-1, keepdim=True), last), last)
    kept = ranked.gather(-1, last)
    return torch.where((top_k > 0) | (top_p < 1), kept, 0)


def _invert(weights: Tensor, sums: Tensor, uniforms: Tensor) -> Tensor:
    """For each row the first token at which the running sum of weights exceeds its uniform share.

    weights: [rows, blocks * _BLOCK]; sums: their block sums, [rows, blocks], float64; uniforms: [rows].
    """
    rows = torch.arange(len(uniforms), device=weights.device)
    block, rest = _locate(sums, uniforms)
    inside = weights.view(len(uniforms), -1, _BLOCK)[rows, block].double()
    token, _ = _locate(inside, rest)
    return block * _BLOCK + token


def _locate(masses: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Where each share (of 1) falls among a row's masses, and its share of the place it falls in.

    The target stays below the total, so a place without mass is never hit.
    """
    cumulative = masses.cumsum(-1)
    total = cumulative[:, -1]
    target = torch.minimum(shares * total, torch.nextafter(total, torch.zeros_like(total)))
    place = (cumulative <= target[:, None]).sum(-1)
    mass = masses.gather(-1, place[:, None]).squeeze(-1)
    before = cumulative.gather(-1, place[:, None]).squeeze(-1) - mass
    return place, ((target - before) / mass).clamp(0, 1)
