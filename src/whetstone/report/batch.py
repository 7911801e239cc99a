"""What a training step sampled, as flat numbers for its ``train`` record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from statistics import pstdev

from whetstone.sample import Batch, Group, Sample
from whetstone.verdict import SHARED_INTERPRETER, Verdict

SPAN = 20
_BASE, _MODULUS = 1_000_003, 2**61 - 1


def batch_metrics(sampled: Sequence[Group], batch: Batch) -> dict[str, float]:
    """Statistics of every group that was ``sampled``, and of which of them the ``batch`` kept.

    ``reward/*`` are over replies that have a reward;
    ``reward/std`` is the population's. ``verdict/*`` are counts, all nine always there, with
    replies that were never judged under judge_error. ``reward/source/*`` are means by source of the problem,
    where there is more than one. ``length/*`` are in tokens, ``length/truncated`` is a share of replies,
    ``length/repetition`` the mean over replies of the share of repeated spans, see :func:`repetition`.
    ``episode/*`` are means of what the workflow notes, over the samples of which it does.
    ``sample/unscored`` counts replies without a reward, and
    ``sample/shared_interpreter`` those among them whose verdict could have been forged. A quantity over
    nothing is left out.
    """
    samples = [sample for group in sampled for sample in group.samples]
    numbers: dict[str, float] = {}
    paid = [s for s in samples if s.reward is not None]
    rewards = [s.reward for s in paid if s.reward is not None]
    if rewards:
        numbers["reward/mean"] = fsum(rewards) / len(rewards)
        numbers["reward/std"] = pstdev(rewards)
        accepted = sum(_verdict(sample) is Verdict.ACCEPTED for sample in paid)
        numbers["reward/pass_rate"] = accepted / len(paid)
    numbers.update(_by_source(sampled))
    verdicts = Counter(_verdict(sample) for sample in samples)
    numbers.update({f"verdict/{verdict.value}": verdicts[verdict] for verdict in Verdict})
    lengths = [sample.length for sample in samples]
    if lengths:
        numbers["length/mean"] = sum(lengths) / len(lengths)
        numbers["length/max"] = max(lengths)
        numbers["length/truncated"] = sum(s.finish_reason == "length" for s in samples) / len(samples)
        numbers["length/repetition"] = fsum(repetition(s.response_ids) for s in samples) / len(samples)
        numbers["length/total"] = sum(lengths)
    numbers["sample/unscored"] = len(samples) - len(rewards)
    forgeable = [s for s in samples if s.judgement and s.judgement.unpaid == SHARED_INTERPRETER]
    numbers["sample/shared_interpreter"] = len(forgeable)
    numbers.update(_notes(samples))
    numbers["group/sampled"] = len(sampled)
    numbers["group/trained"] = len(batch.groups)
    numbers["group/zero_variance"] = sum(len(set(g.rewards())) == 1 for g in sampled)
    numbers.update({f"dropped/{reason}": count for reason, count in sorted(batch.dropped.items())})
    return numbers


def repetition(ids: Sequence[int], span: int = SPAN) -> float:
    """The share of the spans of ``span`` tokens that stood in the reply before; 0 for one that is shorter.

    A reply that goes in circles nears 1. As ArcherCodeR measures it, with 20 tokens.
    """
    spans = len(ids) - span + 1
    if spans < 1:
        return 0.0
    # A rolling hash, for a long reply has as many spans as tokens; 61 bits make a chance equality unlikely.
    gone = pow(_BASE, span, _MODULUS)
    value = 0
    seen: set[int] = set()
    for place, token in enumerate(ids):
        value = (value * _BASE + token + 1) % _MODULUS
        if place >= span:
            value = (value - (ids[place - span] + 1) * gone) % _MODULUS
        if place >= span - 1:
            seen.add(value)
    return 1.0 - len(seen) / spans


def _by_source(sampled: Sequence[Group]) -> dict[str, float]:
    rewards: dict[str, list[float]] = {}
    for group in sampled:
        rewards.setdefault(str(group.meta.get("source") or "unnamed"), []).extend(group.rewards())
    if len(rewards) < 2:
        return {}
    return {f"reward/source/{name}": fsum(r) / len(r) for name, r in sorted(rewards.items()) if r}


def _notes(samples: Sequence[Sample]) -> dict[str, float]:
    notes: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.notes.items():
            notes.setdefault(name, []).append(value)
    return {f"episode/{name}": fsum(values) / len(values) for name, values in sorted(notes.items())}


def _verdict(sample: Sample) -> Verdict:
    return sample.judgement.verdict if sample.judgement else Verdict.JUDGE_ERROR
