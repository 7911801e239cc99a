"""Advantages: how much better a reply did than its siblings.

Pure functions on tensors. A reward of NaN means "no reward" (the judge or an engine failed):
such a sample is neither part of the baseline nor trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whetstone.algorithm.algorithm import Baseline

STD_EPS = 1e-6
WHITEN_EPS = 1e-8


def group_advantages(rewards: Tensor, kind: Baseline) -> tuple[Tensor, Tensor]:
    """Advantages of the replies to one prompt.

    rewards: [n], float, NaN where there is none. Returns ``(advantages, scored)``, both [n]:
    float64, 0 where not scored, and bool.

    ``group_mean`` is R - mean (Dr. GRPO, arXiv 2503.20783); ``group_std`` is (R - mean) / (std + 1e-6)
    with the unbiased standard deviation (GRPO, arXiv 2402.03300); ``leave_one_out`` is R - the mean of the
    others (RLOO, arXiv 2402.14740), which is n / (n - 1) * (R - mean); ``group_relative`` is (R - mean) /
    mean, and 0 where the mean is not above 0 (MaxRL, arXiv 2602.02710). Mean and deviation run over the
    scored replies only. With fewer than two of them there is no baseline, so nothing is scored. Equal
    rewards give advantages of exactly 0, whatever the rounding of the mean. ``none`` has no baseline: R.
    """
    values = rewards.to(torch.float64)
    scored = ~torch.isnan(values)
    advantages = torch.zeros_like(values)
    known = values[scored]
    if kind == "none":
        return values.nan_to_num(nan=0.0), scored
    if known.numel() < 2:
        return advantages, torch.zeros_like(scored)
    if bool((known == known[0]).all()):
        return advantages, scored
    centred = known - known.mean()
    if kind == "group_std":
        centred = centred / (known.std(correction=1) + STD_EPS)
    elif kind == "group_relative":
        mean = known.mean()
        centred = centred / mean if mean > 0 else torch.zeros_like(centred)
    elif kind == "leave_one_out":
        centred = centred * (len(known) / (len(known) - 1))
    advantages[scored] = centred
    return advantages, scored


def still_to_come(values: Tensor, lengths: Tensor) -> Tensor:
    """[T]: for each token the sum of ``values`` ([T]) from it to the end of its reply, in float64.

    lengths: [N], the tokens of each reply, which stand one after the other.
    """
    upto = values.double().cumsum(0)
    ends = upto[lengths.cumsum(0) - 1].repeat_interleave(lengths)
    return ends - upto + values.double()


def whitened(parts: list[Tensor]) -> list[Tensor]:
    """Values less their mean, over their deviation, both over all parts ([T] each).

    (x - mean) / sqrt(var + 1e-8) with the unbiased variance (REINFORCE++, arXiv 2501.03262).
    """
    values = torch.cat(parts).double() if parts else torch.zeros(0).double()
    count = max(len(values), 1)
    mean = values.sum() / count
    variance = (values - mean).square().sum() / max(count - 1, 1)
    return [(part.double() - mean) / (variance + WHITEN_EPS).sqrt() for part in parts]


def soft_overlong_penalty(lengths: Tensor, max_tokens: int, buffer: int) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), to be added to the reward.

    lengths: [n] reply tokens. Returns [n] float64: 0 up to ``max_tokens - buffer`` tokens, then falling
    linearly to -1 at ``max_tokens``, and -1 beyond. ``buffer`` 0 switches it off.

    Raises ValueError unless 0 <= buffer <= max_tokens.
    """
    if not 0 <= buffer <= max_tokens:
        raise ValueError(f"a buffer of {buffer} tokens does not fit replies of at most {max_tokens}")
    if buffer == 0:
        return torch.zeros(lengths.shape, dtype=torch.float64, device=lengths.device)
    over = lengths.to(torch.float64) - (max_tokens - buffer)
    return -(over / buffer).clamp(0.0, 1.0)
