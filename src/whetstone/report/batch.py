"""The samples of a training step, as flat numbers for its ``train`` record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import fsum
from statistics import pstdev

from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.verdict import SHARED_INTERPRETER, Verdict
from whetstone.judge.extract import END_TOKEN

SPAN = 20
_BASE, _MODULUS = 1_000_003, 2**61 - 1


def batch_metrics(
    sampled: Sequence[Group], batch: Batch, special_tokens: AbstractSet[int] = frozenset()
) -> dict[str, float]:
    """Return statistics of all groups in ``sampled``, and of the groups that the ``batch`` kept.

    ``reward/*`` are over replies with a reward; ``reward/std`` is that of the population, and
    ``reward/pass_rate`` is over those of them of which the environment says whether the task was solved.
    ``verdict/*`` are counts of judged replies, all nine if any reply was judged. ``reward/source/*`` are
    means by source of the problem, if there are several. ``length/*`` are in tokens, ``length/truncated`` is
    a share of replies, and ``length/repetition`` is the mean share of repeated spans, see :func:`repetition`.
    ``episode/*`` are means of the samples' metrics, over the samples that have the metric; ``episode/turns``
    is also there if any sample has several turns. ``sample/unscored`` counts replies without a reward, and
    ``sample/shared_interpreter`` those of them whose verdict could have been forged. ``sample/cut`` counts
    replies that ended at the token limit, and ``sample/special_tokens`` those with one of the
    ``special_tokens`` before the end of a turn, or with the text of one. A quantity without values is left
    out.
    """
    samples = [sample for group in sampled for sample in group.samples]
    numbers: dict[str, float] = {}
    rewarded = [s for s in samples if s.reward is not None]
    rewards = [s.reward for s in rewarded if s.reward is not None]
    if rewards:
        numbers["reward/mean"] = fsum(rewards) / len(rewards)
        numbers["reward/std"] = pstdev(rewards)
    decided = [sample.accepted for sample in rewarded if sample.accepted is not None]
    if decided:
        numbers["reward/pass_rate"] = sum(decided) / len(decided)
    numbers.update(_by_source(sampled))
    verdicts = Counter(sample.judgement.verdict for sample in samples if sample.judgement)
    if verdicts:
        numbers.update({f"verdict/{verdict.value}": verdicts[verdict] for verdict in Verdict})
    # Tokens that the model generated; given tokens between turns do not count.
    lengths = [sample.length for sample in samples]
    if lengths:
        numbers["length/mean"] = sum(lengths) / len(lengths)
        numbers["length/max"] = max(lengths)
        numbers["sample/cut"] = sum(s.finish_reason == "length" for s in samples)
        numbers["length/truncated"] = numbers["sample/cut"] / len(samples)
        numbers["length/repetition"] = fsum(repetition(s.response_ids) for s in samples) / len(samples)
        numbers["length/total"] = sum(lengths)
    numbers["sample/replies"] = len(samples)
    numbers["sample/special_tokens"] = sum(_has_special_token(s, special_tokens) for s in samples)
    numbers["sample/unscored"] = len(samples) - len(rewards)
    forgeable = [s for s in samples if s.judgement and s.judgement.unpaid == SHARED_INTERPRETER]
    numbers["sample/shared_interpreter"] = len(forgeable)
    numbers.update(_episode(samples))
    numbers["group/sampled"] = len(sampled)
    numbers["group/trained"] = len(batch.groups)
    numbers["group/zero_variance"] = sum(len(set(g.rewards())) == 1 for g in sampled)
    numbers.update({f"dropped/{reason}": count for reason, count in sorted(batch.dropped.items())})
    return numbers


def repetition(ids: Sequence[int], span: int = SPAN) -> float:
    """Return the share of the spans of ``span`` tokens that occurred earlier in the reply; 0 for a shorter
    reply.

    The share is close to 1 for a reply that repeats itself. ArcherCodeR measures it in the same way, with 20
    tokens.
    """
    spans = len(ids) - span + 1
    if spans < 1:
        return 0.0
    # A rolling hash, because a long reply has as many spans as tokens. With 61 bits a collision is unlikely.
    leaving = pow(_BASE, span, _MODULUS)
    value = 0
    seen: set[int] = set()
    for place, token in enumerate(ids):
        value = (value * _BASE + token + 1) % _MODULUS
        if place >= span:
            value = (value - (ids[place - span] + 1) * leaving) % _MODULUS
        if place >= span - 1:
            seen.add(value)
    return 1.0 - len(seen) / spans


def _has_special_token(sample: Sample, special_tokens: AbstractSet[int]) -> bool:
    begin, ids = 0, sample.response_ids
    for start, end in [*sample.given, (len(ids), len(ids))]:
        # The last token of a turn may be the one that ends it.
        if not special_tokens.isdisjoint(ids[begin : max(begin, start - 1)]):
            return True
        begin = end
    texts = [text for role, text in sample.dialogue if role == "assistant"] or [sample.text]
    found = (END_TOKEN.search(text) for text in texts)
    return any(match and match.string[match.end() :].strip() for match in found)


def _by_source(sampled: Sequence[Group]) -> dict[str, float]:
    rewards: dict[str, list[float]] = {}
    for group in sampled:
        rewards.setdefault(str(group.meta.get("source") or "unnamed"), []).extend(group.rewards())
    if len(rewards) < 2:
        return {}
    return {f"reward/source/{name}": fsum(r) / len(r) for name, r in sorted(rewards.items()) if r}


def _episode(samples: Sequence[Sample]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.metrics.items():
            found.setdefault(name, []).append(value)
    if "turns" not in found and any(sample.turns > 1 for sample in samples):
        found["turns"] = [float(sample.turns) for sample in samples]
    return {f"episode/{name}": fsum(values) / len(values) for name, values in sorted(found.items())}
