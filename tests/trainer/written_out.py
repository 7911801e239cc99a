"""Every algorithm's loss as its formula says, reply by reply in float64: code of its own, slow and plain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.core.sample import Batch, Group

POLICY_GRADIENTS = [name for name in preset_names() if not algorithm_class(name).cross_entropy]
CROSS_ENTROPIES = [name for name in preset_names() if algorithm_class(name).cross_entropy]


@dataclass
class Row:
    """A reply: its reward and what four policies say of its tokens."""

    group: int
    reward: float
    new: torch.Tensor
    entropy: torch.Tensor
    old: torch.Tensor
    engine: torch.Tensor
    reference: torch.Tensor


def said_by(model, group: Group, ids: list[int], temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model(torch.tensor([[*group.prompt_ids, *ids]])).logits[0] / temperature
    logs = logits.log_softmax(-1)[len(group.prompt_ids) - 1 : -1]
    return logs.gather(1, torch.tensor(ids)[:, None])[:, 0], -(logs.exp() * logs).sum(-1)


def rows_of(batch: Batch, policy, earlier, start, temperature: float) -> list[Row]:
    rows = []
    for number, group in enumerate(batch.groups):
        for s in group.samples:
            new, entropy = said_by(policy, group, s.response_ids, temperature)
            others = [said_by(m, group, s.response_ids, temperature)[0].detach() for m in (earlier, start)]
            engine = torch.tensor(s.logprobs).double()
            assert s.reward is not None
            rows.append(Row(number, s.reward, new, entropy, others[0], engine, others[1]))
    return rows


def written_out(rows: list[Row], algorithm: Algorithm, max_tokens: int) -> torch.Tensor:
    """The loss of one mini-batch."""
    name = algorithm.preset
    advantages = _advantages(rows, algorithm)
    if name == "archer":
        return _archer(rows, advantages, algorithm)
    if name == "m2po":
        losses = _m2po(rows, advantages, algorithm)
    else:
        losses = [_reply(row, advantage, algorithm) for row, advantage in zip(rows, advantages, strict=True)]
    for i, row in enumerate(rows):
        if algorithm.correction is not None:
            losses[i] = losses[i] * _correction(row, algorithm.correction)
        if algorithm.kl_coef and algorithm.kl_in == "loss":
            losses[i] = losses[i] + algorithm.kl_coef * _kl(row.new, row.reference, algorithm.kl_estimate)
        losses[i] = losses[i] - algorithm.entropy_coef * row.entropy
    if algorithm.aggregation == "token_mean":
        return torch.cat(losses).mean()
    if algorithm.aggregation == "sequence_mean":
        return torch.stack([loss.mean() for loss in losses]).mean()
    return torch.cat(losses).sum() / (len(rows) * max_tokens)


def _kl(log_p, log_ref, estimate):
    if estimate == "k1":
        return log_p - log_ref
    if estimate == "k2":
        return (log_p - log_ref) ** 2 / 2
    return torch.exp(log_ref - log_p) - 1 - (log_ref - log_p)


def _advantages(rows: list[Row], algorithm: Algorithm) -> list[torch.Tensor]:
    """One tensor a reply, a value a token."""
    in_reward = algorithm.kl_coef if algorithm.kl_in == "reward" else 0.0
    tokens = []
    for row in rows:
        penalties = (in_reward * _kl(row.old, row.reference, algorithm.kl_estimate)).tolist()
        if algorithm.advantage == "none":
            values = [row.reward - sum(penalties[t:]) for t in range(len(penalties))]
            tokens.append(torch.tensor(values).double())
            continue
        siblings = [r for r in rows if r.group == row.group]
        rewards = [
            r.reward - in_reward * float(_kl(r.old, r.reference, algorithm.kl_estimate).sum())
            for r in siblings
        ]
        mine = row.reward - sum(penalties)
        mean = sum(rewards) / len(rewards)
        if algorithm.advantage == "leave_one_out":
            value = mine - (sum(rewards) - mine) / (len(rewards) - 1)
        elif algorithm.advantage == "group_relative":
            value = (mine - mean) / mean if mean > 0 else 0.0
        elif algorithm.advantage == "group_std":
            variance = sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)
            value = (mine - mean) / (math.sqrt(variance) + 1e-6)
        else:
            value = mine - mean
        tokens.append(torch.full((len(row.new),), value).double())
    if algorithm.whiten:
        every = torch.cat(tokens)
        tokens = [(t - every.mean()) / torch.sqrt(every.var() + 1e-8) for t in tokens]
    return tokens


def _clip(ratio, advantage, low, high, dual=None):
    free, bounded = ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage
    # Not `minimum`: the gradient of a ratio at a bound depends on the version of torch.
    objective = torch.where(bounded < free, bounded, free)
    if dual is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual * advantage), objective)
    return -objective


def _reply(row: Row, advantage: torch.Tensor, algorithm: Any) -> torch.Tensor:
    logs = row.new - row.old
    if algorithm.preset == "cispo":
        return -logs.exp().clamp(max=algorithm.ratio_cap).detach() * advantage * row.new
    ratio = logs.exp()
    if algorithm.preset == "gspo":
        ratio = logs.mean().exp().expand(len(logs))
    if algorithm.preset == "rloo":
        ratio = logs.sum().exp().expand(len(logs))
    return _clip(ratio, advantage, algorithm.clip_low, algorithm.clip_high, algorithm.dual_clip)


def _correction(row: Row, correction) -> torch.Tensor:
    rho = [math.exp(o - e) for o, e in zip(row.old.tolist(), row.engine.tolist(), strict=True)]
    if correction.kind == "tis":
        return torch.tensor([min(r, correction.cap) for r in rho]).double()
    return torch.tensor([r if correction.low <= r <= correction.high else 0.0 for r in rho]).double()


def _archer(rows: list[Row], advantages, algorithm) -> torch.Tensor:
    losses, knowing, reasoning = [], [], []
    for row, advantage in zip(rows, advantages, strict=True):
        ratio = (row.new - row.old).exp()
        threshold = torch.quantile(row.entropy.detach(), algorithm.entropy_quantile)
        divergence = _kl(row.new, row.reference, algorithm.kl_estimate)
        for t in range(len(row.new)):
            sure = bool(row.entropy[t] <= threshold)
            low = algorithm.clip_low if sure else algorithm.reasoning_clip_low
            high = algorithm.clip_high if sure else algorithm.reasoning_clip_high
            losses.append(_clip(ratio[t], advantage[t], low, high, algorithm.dual_clip))
            (knowing if sure else reasoning).append(divergence[t])
    penalty = algorithm.kl_coef * torch.stack(knowing).mean()
    penalty = penalty + algorithm.reasoning_kl_coef * torch.stack(reasoning).mean()
    return torch.stack(losses).mean() + penalty


def _m2po(rows: list[Row], advantages, algorithm) -> list[torch.Tensor]:
    deltas = [(row.new - row.engine) for row in rows]
    candidates = [
        (float(d.detach()) ** 2, i, t)
        for i, (delta, advantage) in enumerate(zip(deltas, advantages, strict=True))
        for t, (d, a) in enumerate(zip(delta, advantage, strict=True))
        if (a > 0 and d > 0) or (a < 0 and d < 0)
    ]
    kept = sorted(candidates)
    while kept and sum(square for square, _, _ in kept) / len(kept) > algorithm.budget:
        kept.pop()
    if algorithm.variant == "algorithm_1":
        out = {(i, t) for _, i, t in candidates} - {(i, t) for _, i, t in kept}
        return [
            torch.stack(
                [d * 0.0 if (i, t) in out else -d.exp() * advantages[i][t] for t, d in enumerate(delta)]
            )
            for i, delta in enumerate(deltas)
        ]
    if algorithm.variant == "winsor":
        low, high = 0.0, 100.0  # the cap, by halving
        for _ in range(200):
            middle = (low + high) / 2
            total = sum(min(square, middle**2) for square, _, _ in candidates) / len(candidates)
            low, high = (middle, high) if total <= algorithm.budget else (low, middle)
        bounds = min(math.exp(-low), 0.7), max(math.exp(low), 1.5)
    elif len(kept) == len(candidates):
        bounds = 0.05, 21.0
    else:
        largest = math.sqrt(kept[-1][0]) if kept else 0.0
        bounds = max(math.exp(-largest), 0.05), min(math.exp(largest), 21.0)
    return [
        _clip(delta.exp(), advantage, 1 - bounds[0], bounds[1] - 1)
        for delta, advantage in zip(deltas, advantages, strict=True)
    ]
