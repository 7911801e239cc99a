"""From a batch of groups to the data of one optimizer update.

This module sets the loss weight of every reply token and, once penalties in the reward are known, its
advantage. Replies without loss are removed: they are not packed and not in any denominator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from whetstone.algorithm.advantage import group_advantages, soft_overlong_penalty, still_to_come, whitened
from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.loss import token_weights
from whetstone.algorithm.loss_free import loss_free_reasons
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group, Sample
from whetstone.engine.expert_routing import ExpertRouters
from whetstone.trainer.log_probs import Supports
from whetstone.trainer.packing import PromptReplies


@dataclass(frozen=True)
class _ScoredGroup:
    """A group, the rewards of all its samples ([n] float64, NaN if missing), the indices of samples with
    loss, and for each of these which of its tokens carry loss."""

    group: Group
    rewards: Tensor
    kept: list[int]
    trainable: list[list[bool]]


@dataclass(frozen=True)
class MiniBatch:
    """Groups of which some replies carry loss, and per written token of these in their flat order, [T] each:

    weights (fp32, summing the token losses to the mini-batch's loss), the engine's log-probs (fp32), the
    version of the weights that drew it, and the number of the token's reply. lengths: [N], the tokens with
    loss of each reply. written: bool, [all tokens of these replies in their flat order], which of them are
    the T that the model wrote and that are not too old. routers: of the model that replays the recorded
    experts of the replies, or None. supports: those of the T tokens, over which log-probs are; None if always
    over the whole vocabulary.
    """

    scored: list[_ScoredGroup]
    weights: Tensor
    engine_log_probs: Tensor
    versions: Tensor
    replies: Tensor
    lengths: Tensor
    written: Tensor
    routers: ExpertRouters | None = None
    supports: Supports | None = None

    @property
    def groups(self) -> list[PromptReplies]:
        """Prompts and the complete replies that carry loss, for packing; replies to the same prompt are
        adjacent. Raises UserError for missing experts."""
        return [
            PromptReplies(
                prompt,
                [sample.response_ids for sample in samples],
                None if self.routers is None else _recorded(scored.group, samples, self.routers),
            )
            for scored in self.scored
            for prompt, samples in _by_prompt(scored)
        ]

    @property
    def tokens(self) -> int:
        """T, the number of reply tokens that carry loss."""
        return len(self.weights)

    def to(self, device: torch.device) -> MiniBatch:
        """Return a copy with its tensors on ``device``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {k: v.to(device) for k, v in values.items() if isinstance(v, Tensor | Supports)}
        return replace(self, **moved)


def make_minibatches(
    batch: Batch,
    spec: Algorithm,
    *,
    count: int,
    max_tokens: int,
    routers: ExpertRouters | None = None,
) -> list[MiniBatch]:
    """Split a batch by whole groups, in order, into at most ``count`` mini-batches with similar numbers of
    groups.

    A sample carries no loss for the reasons of ``loss_free_reasons``, or if it has no token of weights
    ``batch.oldest`` or later. Groups without a sample with loss are omitted, so the result may be empty.
    """
    scored = [s for s in (_score(group, spec, max_tokens, batch.oldest) for group in batch.groups) if s.kept]
    count = min(count, len(scored))
    # Rounding each edge spreads the remainder over the mini-batches.
    edges = [round(i * len(scored) / count) for i in range(count + 1)] if count else []
    parts = [scored[a:b] for a, b in itertools.pairwise(edges)]
    return [_minibatch(part, spec, max_tokens, routers) for part in parts]


def step_advantages(
    minibatches: Sequence[MiniBatch],
    spec: Algorithm,
    penalties: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Return the advantages of each mini-batch's tokens, [T] each, in fp32 on the device of its tensors.

    penalties: [T] for each mini-batch, subtracted from the reward: from that of the reply or, if the
    algorithm has no baseline, from that of the tokens up to it. Whitening covers all mini-batches.
    """
    parts = [
        _advantages(data, spec, None if penalties is None else penalties[i].double().cpu())
        for i, data in enumerate(minibatches)
    ]
    if spec.whiten:
        parts = whitened(parts)
    return [part.float().to(data.weights.device) for part, data in zip(parts, minibatches, strict=True)]


def _advantages(data: MiniBatch, spec: Algorithm, penalty: Tensor | None) -> Tensor:
    lengths = data.lengths.cpu()
    by_reply = [] if penalty is None else [float(part.sum()) for part in penalty.split(lengths.tolist())]
    found: list[Tensor] = []
    place = 0
    for scored in data.scored:
        rewards = scored.rewards.clone()
        # A baseline compares whole replies, so the penalty of a reply is one number.
        if penalty is not None and spec.advantage != "none":
            rewards[scored.kept] -= torch.tensor(by_reply[place : place + len(scored.kept)]).double()
        found.append(group_advantages(rewards, spec.advantage)[0][scored.kept])
        place += len(scored.kept)
    advantages = torch.cat(found).repeat_interleave(lengths)
    if penalty is not None and spec.advantage == "none":
        advantages = advantages - still_to_come(penalty, lengths)
    return advantages


def _score(group: Group, spec: Algorithm, max_tokens: int, oldest: int | None) -> _ScoredGroup:
    known = [spec.trained_reward(sample) for sample in group.samples]
    rewards = torch.tensor([math.nan if r is None else r for r in known], dtype=torch.float64)
    if not spec.truncated_in_baseline:
        cut = torch.tensor([sample.finish_reason == "length" for sample in group.samples])
        rewards[cut] = math.nan
    lengths = torch.tensor([s.length for s in group.samples])
    rewards = rewards + soft_overlong_penalty(lengths, max_tokens, spec.overlong_buffer)
    trainable = [sample.trainable(oldest) for sample in group.samples]
    reasons = loss_free_reasons(group, spec)
    kept = [i for i, reason in enumerate(reasons) if not reason and any(trainable[i])]
    return _ScoredGroup(group, rewards, kept, [trainable[i] for i in kept])


def _by_prompt(scored: _ScoredGroup) -> list[tuple[list[int], list[Sample]]]:
    """Return the prompts of the samples with loss, each with its samples."""
    kept = [scored.group.samples[i] for i in scored.kept]
    parts = itertools.groupby(kept, key=lambda sample: sample.prompt_ids or scored.group.prompt_ids)
    return [(prompt, list(samples)) for prompt, samples in parts]


def _recorded(group: Group, samples: Sequence[Sample], routers: ExpertRouters) -> tuple[Tensor, list[Tensor]]:
    """Return the experts of a prompt, which are those of its first reply, and of its replies.

    Tokens after the last one that the model wrote may have none: no loss depends on them.
    """
    prompt = samples[0].prompt_routing or group.prompt_routing
    needed = len(samples[0].prompt_ids or group.prompt_ids)
    if prompt is None or prompt.tokens < needed:
        raise _missing(group)
    replies: list[Tensor] = []
    for sample in samples:
        written = sample.written()
        last = len(written) - 1 - written[::-1].index(True)
        if sample.routing is None or sample.routing.tokens < last:
            raise _missing(group)
        rows = routers.read(sample.routing)
        more = max(0, len(written) - 1 - len(rows))
        replies.append(torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]))
    return routers.read(prompt)[:needed], replies


def _missing(group: Group) -> UserError:
    return UserError(
        "trainer.routing_replay: the engine returned no experts for a reply to problem "
        f"{group.problem_id!r}; let it return them (`Completion.routing`), or set it to false"
    )


def _minibatch(
    part: list[_ScoredGroup], spec: Algorithm, max_tokens: int, routers: ExpertRouters | None
) -> MiniBatch:
    samples = [scored.group.samples[i] for scored in part for i in scored.kept]
    trainable = [tokens for scored in part for tokens in scored.trainable]
    lengths = torch.tensor([sum(tokens) for tokens in trainable])
    written = torch.tensor([carries for tokens in trainable for carries in tokens])
    weights = token_weights(lengths, spec.aggregation, max_tokens)
    return MiniBatch(
        scored=part,
        weights=weights.repeat_interleave(lengths).float(),
        engine_log_probs=torch.tensor([p for s in samples for p in s.logprobs], dtype=torch.float32)[written],
        versions=torch.tensor([v for s in samples for v in s.versions])[written],
        replies=torch.arange(len(lengths)).repeat_interleave(lengths),
        lengths=lengths,
        written=written,
        routers=routers,
        # A cross-entropy is that of the whole vocabulary, however the replies were sampled.
        supports=None if spec.cross_entropy else _supports(samples, trainable),
    )


def _supports(samples: Sequence[Sample], trainable: Sequence[Sequence[bool]]) -> Supports | None:
    """Return the supports of the ``trainable`` tokens of samples in their flat order; None without any."""
    if not any(sample.supports for sample in samples):
        return None
    chosen = [
        support
        for sample, tokens in zip(samples, trainable, strict=True)
        for support, carries in zip(sample.supports or [[]] * len(tokens), tokens, strict=True)
        if carries
    ]
    counts = torch.tensor([len(support) for support in chosen])
    return Supports(
        torch.tensor([i for support in chosen for i in support]), counts.cumsum(0) - counts, counts
    )
