"""Compares trained groups with all sampled groups, in running sums over every group."""

from __future__ import annotations

import math
from typing import TypeVar

from msgspec import Struct, field

from whetstone.algorithm.loss_free import UNSCORED
from whetstone.rollout.group_facts import ZERO_VARIANCE, GroupFacts

# Bins of lengths for each power of two. Lengths up to 45 tokens have a bin of their own.
_BINS_PER_OCTAVE = 32
TRAINED = "trained"
T = TypeVar("T", int, str)


class _OutcomeTally(Struct):
    """Sums over groups with the same outcome. ``lengths``: replies by the bin of their length."""

    groups: int = 0
    replies: int = 0
    tokens: int = 0
    scored: int = 0
    reward: float = 0.0
    lengths: dict[int, int] = field(default_factory=dict[int, int])
    sources: dict[str, int] = field(default_factory=dict[str, int])
    difficulties: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, facts: GroupFacts) -> None:
        """Add a group."""
        self.groups += 1
        lengths = facts.lengths
        self.replies += len(lengths)
        self.tokens += sum(lengths)
        scored = facts.scored()
        self.scored += len(scored)
        self.reward += sum(scored)
        for length in lengths:
            bin_ = 1 + int(_BINS_PER_OCTAVE * math.log2(length)) if length else 0
            self.lengths[bin_] = self.lengths.get(bin_, 0) + 1
        for counts, name in ((self.sources, facts.source), (self.difficulties, facts.difficulty)):
            counts[name] = counts.get(name, 0) + 1

    def plus(self, other: _OutcomeTally, sign: int = 1) -> _OutcomeTally:
        """Return the sum of both tallies, or with ``sign`` -1 their difference."""
        return _OutcomeTally(
            self.groups + sign * other.groups,
            self.replies + sign * other.replies,
            self.tokens + sign * other.tokens,
            self.scored + sign * other.scored,
            self.reward + sign * other.reward,
            _combined(self.lengths, other.lengths, sign),
            _combined(self.sources, other.sources, sign),
            _combined(self.difficulties, other.difficulties, sign),
        )

    @property
    def length(self) -> float | None:
        """Mean number of tokens of a reply."""
        return self.tokens / self.replies if self.replies else None

    @property
    def mean_reward(self) -> float | None:
        """Mean reward of the replies that have one."""
        return self.reward / self.scored if self.scored else None


class Audit(Struct):
    """Tallies by outcome: trained, or the reason why not."""

    outcomes: dict[str, _OutcomeTally] = field(default_factory=dict[str, _OutcomeTally])

    def add(self, facts: GroupFacts, reason: str) -> None:
        """Add a group."""
        self.outcomes.setdefault(reason or TRAINED, _OutcomeTally()).add(facts)

    def figures(self) -> dict[str, float]:
        """Return how trained groups differ from all sampled groups, and the part of each drop reason.

        ``length``, ``reward``: means. ``length_shift``: the largest difference between the shares of replies
        up to a length (Kolmogorov-Smirnov distance), with lengths rounded to 2%; ``usable_length_shift``: the
        same, compared only with the groups that have a learning signal. ``source_shift``,
        ``difficulty_shift``: total variation distance of the sources or difficulties. For each reason: its
        share of the groups, their means, and by how much the overall mean would change without them. A figure
        without data is omitted.
        """
        whole = _OutcomeTally()
        for tally in self.outcomes.values():
            whole = whole.plus(tally)
        if not whole.groups:
            return {}
        found = _means("sampled", whole)
        trained = self.outcomes.get(TRAINED)
        if trained is not None:
            found |= _means(TRAINED, trained)
            found["audit/length_shift"] = _shift(whole.lengths, trained.lengths)
            usable = _OutcomeTally()
            for reason, tally in self.outcomes.items():
                usable = usable.plus(tally) if reason not in (UNSCORED, ZERO_VARIANCE) else usable
            found["audit/usable_length_shift"] = _shift(usable.lengths, trained.lengths)
            found["audit/source_shift"] = _variation(whole.sources, trained.sources)
            found["audit/difficulty_shift"] = _variation(whole.difficulties, trained.difficulties)
        for reason, tally in sorted(self.outcomes.items()):
            if reason == TRAINED:
                continue
            found[f"audit/dropped/{reason}/share"] = tally.groups / whole.groups
            found |= _means(f"dropped/{reason}", tally)
            # The bias of a reason is the change of the mean if its groups had not been sampled.
            rest = whole.plus(tally, -1)
            for name, without, all_ in (
                ("length", rest.length, whole.length),
                ("reward", rest.mean_reward, whole.mean_reward),
            ):
                if without is not None and all_ is not None:
                    found[f"audit/dropped/{reason}/{name}_bias"] = without - all_
        return found


def _means(name: str, tally: _OutcomeTally) -> dict[str, float]:
    found = {f"audit/{name}/groups": float(tally.groups)}
    for quantity, mean in (("length", tally.length), ("reward", tally.mean_reward)):
        if mean is not None:
            found[f"audit/{name}/{quantity}"] = mean
    return found


def _shift(all_: dict[int, int], some: dict[int, int]) -> float:
    total, part = sum(all_.values()), sum(some.values())
    largest, up_to, part_up_to = 0.0, 0, 0
    for bin_ in sorted(all_.keys() | some.keys()):
        up_to, part_up_to = up_to + all_.get(bin_, 0), part_up_to + some.get(bin_, 0)
        if total and part:
            largest = max(largest, abs(up_to / total - part_up_to / part))
    return largest


def _variation(all_: dict[str, int], some: dict[str, int]) -> float:
    total, part = sum(all_.values()), sum(some.values())
    if not total or not part:
        return 0.0
    return sum(abs(all_.get(n, 0) / total - some.get(n, 0) / part) for n in all_.keys() | some.keys()) / 2


def _combined(a: dict[T, int], b: dict[T, int], sign: int) -> dict[T, int]:
    joined = {name: a.get(name, 0) + sign * b.get(name, 0) for name in a.keys() | b.keys()}
    return {name: count for name, count in joined.items() if count}
