"""Metrics of a step's tokens and updates, accumulated during training."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from whetstone.algorithm.algorithm import Losses, LossInputs
from whetstone.algorithm.loss import MAX_LOG_RATIO, bounded_exp, divergence
from whetstone.core.errors import UserError
from whetstone.trainer.ranks import Ranks

# Metrics that are quantiles of the ratios p / p_old over all tokens and updates.
QUANTILES = {"ratio_p01": 0.01, "ratio_p99": 0.99}

# The bounds of the ratio p_engine / p_trainer within which a token counts as equal.
INSIDE = (0.9, 1.1)

_BINS, _FINEST = 2000, 1e-4
_WIDTH = math.asinh(MAX_LOG_RATIO / _FINEST) / _BINS


class StepMeter:
    """Sums of the metrics of a step; ``ranks`` adds those of the other ranks at the end.

    Sums are on the device of the tokens until then, so the host never waits for a token. Norms and update
    counts are equal on all ranks; a rank without tokens adds nothing else.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        # Sums and counts by name, and largest values; float64 scalars.
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor | int] = {}
        self._largest: dict[str, Tensor] = {}
        self._log_ratios = torch.zeros(2 * _BINS + 1, dtype=torch.float64)
        self._norms: list[float] = []
        self._updates = 0

    def add_tokens(
        self, inputs: LossInputs, found: Losses, loss: Tensor, *, first: bool, fresh: Tensor
    ) -> None:
        """Add some tokens of an update, and their part of its loss.

        first: whether the policy is still that of the step's start, so that it can be compared with the
        engine's. fresh: [c], the tokens sampled with those weights.
        """
        for name, values in found.metrics.items():
            self._add_mean(name, values)
        self._add_mean("entropy", inputs.entropies)
        log_ratio = inputs.log_probs.detach() - inputs.old
        self._add_mean("ratio_mean", bounded_exp(log_ratio))
        self._add_mean("step_kl", divergence(inputs.log_probs.detach(), inputs.old, "k3"))
        self._record_max("ratio_max", bounded_exp(log_ratio))
        self._record_max("ratio_min", -bounded_exp(log_ratio))
        self._log_ratios = self._log_ratios.to(log_ratio.device) + histogram(log_ratio)
        self._add("loss", loss)
        if first:
            gap = inputs.old - inputs.engine
            self._add_mean("logprob_gap", gap.abs())
            self._add("engine_gap", gap.abs().where(fresh, 0.0))
            self._counts["engine_gap"] = self._counts.get("engine_gap", 0) + fresh.sum()
            # The engine sampled the tokens, so the mean of k3 is under the engine's policy.
            self._add_mean("engine_kl", divergence(inputs.engine, inputs.old, "k3"))
            self._record_max("logprob_gap_max", gap.abs())
            self._add_mean("outside", is_outside(gap))

    def add_update(self, norm: float) -> None:
        """Add one optimizer update with its gradient norm."""
        self._updates += 1
        if math.isfinite(norm):
            self._norms.append(norm)

    def metrics(self) -> dict[str, float]:
        """Return the metrics; values that are not finite are omitted."""
        own = [_read(self._sums), _read(self._counts), _read(self._largest)]
        told = self._ranks.gather_data(own, "the metrics of a step")
        sums, counts, largest = ([part[place] for part in told] for place in range(3))
        # A loss is a sum over all tokens of an update; all else is a mean over tokens.
        counts.append({"loss": self._updates})
        known = [name for name in _names(sums) if _total(counts, name)]
        values = {name: _total(sums, name) / _total(counts, name) for name in known}
        for name in _names(largest):
            most = max(part[name] for part in largest if name in part)
            values[name] = -most if name.endswith("_min") else most
        seen = self._ranks.sum(self._log_ratios.cpu().clone(), "the ratios of a step")
        if seen.any():
            values |= {name: math.exp(quantile(seen, share)) for name, share in QUANTILES.items()}
        if self._norms:
            values["grad_norm"] = sum(self._norms) / len(self._norms)
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _add_mean(self, name: str, values: Tensor) -> None:
        self._add(name, values)
        self._counts[name] = self._counts.get(name, 0) + values.numel()

    def _add(self, name: str, values: Tensor) -> None:
        more = values.detach().double().sum()
        self._sums[name] = self._sums[name] + more if name in self._sums else more

    def _record_max(self, name: str, values: Tensor) -> None:
        most = values.detach().max()
        self._largest[name] = torch.maximum(self._largest[name], most) if name in self._largest else most


def is_outside(gap: Tensor) -> Tensor:
    """Return for trainer - engine log-probs, of any shape, whether p_engine / p_trainer is outside
    ``INSIDE``."""
    low, high = (math.log(bound) for bound in INSIDE)
    return (gap < -high) | (gap > -low)


def check_engine_gap(gap: float | None, limit: float) -> None:
    """Raise UserError if the mean |trainer - engine| log-prob of equal weights is too large for rounding."""
    if gap is not None and 0 < limit < gap:
        raise UserError(
            f"the engine's log-probs are {gap:.3f} nats off, in the mean, from what the trainer computes "
            f"with the same weights, and `trainer.max_engine_gap` is {limit:g}: it samples from another "
            "distribution. Check that it serves this model in this `model.dtype` with the requested "
            "sampling settings; or raise the bound"
        )


def histogram(log_ratios: Tensor) -> Tensor:
    """Return [2 * _BINS + 1] counts of [c] log-ratios, in bins whose width is 0.7% of the value, and 1e-6
    around 0.

    A step has too many tokens to store and sort. Counts can be added over chunks and ranks.
    """
    scaled = torch.asinh(log_ratios.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) / _FINEST) / _WIDTH
    bins = scaled.nan_to_num().round().long() + _BINS
    counts = torch.zeros(2 * _BINS + 1, dtype=torch.float64, device=bins.device)
    # A count of bins would wait for the largest one.
    return counts.index_add_(0, bins, (~scaled.isnan()).double())


def quantile(counts: Tensor, share: float) -> float:
    """Return the log-ratio below which ``share`` of those in :func:`histogram` are."""
    place = round(share * (float(counts.sum()) - 1))
    bin_ = int((counts.cumsum(0) <= place).sum()) - _BINS
    return math.sinh(bin_ * _WIDTH) * _FINEST


def _read(values: Mapping[str, Tensor | int]) -> dict[str, float]:
    """Return numbers by name, with one copy from the device."""
    known: dict[str, float] = {n: value for n, value in values.items() if not isinstance(value, Tensor)}
    waiting = {n: value.double() for n, value in values.items() if isinstance(value, Tensor)}
    read = torch.stack([*waiting.values()]).tolist() if waiting else []
    return known | dict(zip(waiting, read, strict=True))


def _names(parts: list[dict[str, float]]) -> list[str]:
    return sorted({name for part in parts for name in part})


def _total(parts: list[dict[str, float]], name: str) -> float:
    return sum(part.get(name, 0.0) for part in parts)
