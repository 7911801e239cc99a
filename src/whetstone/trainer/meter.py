"""What a step reports of its tokens and updates, counted while it trains."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whetstone.algorithm.algorithm import Losses, LossInputs
from whetstone.algorithm.loss import MAX_LOG_RATIO, bounded_exp, divergence
from whetstone.errors import UserError
from whetstone.trainer.ranks import Ranks

QUANTILES = {"ratio_p01": 0.01, "ratio_p99": 0.99}
"""Metrics of the ratios p / p_old of all tokens and updates, and which of their quantiles each is."""

_BINS, _FINEST = 2000, 1e-4
_WIDTH = math.asinh(MAX_LOG_RATIO / _FINEST) / _BINS


class Meter:
    """Sums of what a step's tokens and updates report; ``ranks`` adds those of the others at the end.

    Norms and numbers of updates are the same on all ranks; a rank without tokens has counted nothing else.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._largest: dict[str, float] = {}
        self._log_ratios = torch.zeros(2 * _BINS + 1, dtype=torch.float64)
        self._norms: list[float] = []
        self._updates = 0

    def tokens(self, inputs: LossInputs, found: Losses, loss: Tensor, *, first: bool, fresh: Tensor) -> None:
        """Count some tokens of an update, and their part of its loss.

        first: whether the policy is still that of the step's start, so that it can be compared with the
        engine's. fresh: [c], which tokens were drawn with the weights of that start.
        """
        for name, values in found.metrics.items():
            self._mean(name, values)
        self._mean("entropy", inputs.entropies)
        log_ratio = inputs.log_probs.detach() - inputs.old
        self._mean("ratio_mean", bounded_exp(log_ratio))
        self._mean("step_kl", divergence(inputs.log_probs.detach(), inputs.old, "k3"))
        self._most("ratio_max", bounded_exp(log_ratio))
        self._most("ratio_min", -bounded_exp(log_ratio))
        self._log_ratios += histogram(log_ratio)
        self._sums["loss"] = self._sums.get("loss", 0.0) + float(loss.detach())
        if first:
            gap = inputs.old - inputs.engine
            self._mean("logprob_gap", gap.abs())
            if fresh.any():
                self._mean("engine_gap", gap.abs()[fresh])
            # Drawn by the engine, so its policy is the one that k3 takes the mean under.
            self._mean("engine_kl", divergence(inputs.engine, inputs.old, "k3"))
            self._most("logprob_gap_max", gap.abs())

    def update(self, norm: float) -> None:
        """Count one optimizer update and its gradient norm."""
        self._updates += 1
        if math.isfinite(norm):
            self._norms.append(norm)

    def metrics(self) -> dict[str, float]:
        """What was counted; a value that is not finite is left out, as nothing can be said of it."""
        told = self._ranks.gather_data([self._sums, self._counts, self._largest], "the metrics of a step")
        sums, counts, largest = ([part[place] for part in told] for place in range(3))
        # A loss is a sum over all tokens of an update; all else is a mean over tokens.
        values = {name: _total(sums, name) / (_total(counts, name) or self._updates) for name in _names(sums)}
        for name in _names(largest):
            most = max(part[name] for part in largest if name in part)
            values[name] = -most if name.endswith("_min") else most
        seen = self._ranks.sum(self._log_ratios.clone(), "the ratios of a step")
        if seen.any():
            values |= {name: math.exp(quantile(seen, share)) for name, share in QUANTILES.items()}
        if self._norms:
            values["grad_norm"] = sum(self._norms) / len(self._norms)
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _mean(self, name: str, values: Tensor) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + float(values.detach().double().sum())
        self._counts[name] = self._counts.get(name, 0) + values.numel()

    def _most(self, name: str, values: Tensor) -> None:
        self._largest[name] = max(self._largest.get(name, -math.inf), float(values.detach().max()))


def check_engine(gap: float | None, limit: float) -> None:
    """Raise UserError for a mean |trainer - engine| log-prob of the same weights that is no rounding."""
    if gap is not None and 0 < limit < gap:
        raise UserError(
            f"the engine's log-probs are {gap:.3f} nats off, in the mean, from what the trainer computes "
            f"with the same weights, and `trainer.max_engine_gap` is {limit:g}: it draws from another "
            "distribution. See that it serves this model in this `model.dtype`, with the sampling that it is "
            "asked for; or raise the bound"
        )


def histogram(log_ratios: Tensor) -> Tensor:
    """[2 * _BINS + 1] counts of [c] log-ratios, in bins whose width is 0.7% of the value, and 1e-6 around 0.

    A step has too many tokens to keep and sort; counts can be added, over chunks and over ranks.
    """
    scaled = torch.asinh(log_ratios.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) / _FINEST) / _WIDTH
    bins = scaled.round().long().cpu() + _BINS
    return torch.bincount(bins, minlength=2 * _BINS + 1).double()


def quantile(counts: Tensor, share: float) -> float:
    """The log-ratio below which ``share`` of those counted by :func:`histogram` are."""
    place = round(share * (float(counts.sum()) - 1))
    bin_ = int((counts.cumsum(0) <= place).sum()) - _BINS
    return math.sinh(bin_ * _WIDTH) * _FINEST


def _names(parts: list[dict[str, float]]) -> list[str]:
    return sorted({name for part in parts for name in part})


def _total(parts: list[dict[str, float]], name: str) -> float:
    return sum(part.get(name, 0.0) for part in parts)
