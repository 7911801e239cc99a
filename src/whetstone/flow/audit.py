"""Is what was trained like what was sampled? Running sums over every group that was accounted for."""

from __future__ import annotations

from msgspec import Struct, field

from whetstone.flow.facts import Facts

_BINS = 32
TRAINED = "trained"


class Tally(Struct):
    """Groups of one fate. ``lengths``: replies by the binary logarithm of their tokens, from 0 on."""

    groups: int = 0
    replies: int = 0
    tokens: int = 0
    scored: int = 0
    reward: float = 0.0
    lengths: list[int] = field(default_factory=lambda: [0] * _BINS)
    sources: dict[str, int] = field(default_factory=dict[str, int])
    difficulties: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, facts: Facts) -> None:
        """Count a group."""
        self.groups += 1
        self.replies += len(facts.lengths)
        self.tokens += sum(facts.lengths)
        scored = facts.scored()
        self.scored += len(scored)
        self.reward += sum(scored)
        for length in facts.lengths:
            self.lengths[min(length.bit_length(), _BINS - 1)] += 1
        for counts, name in ((self.sources, facts.source), (self.difficulties, facts.difficulty)):
            counts[name] = counts.get(name, 0) + 1

    def plus(self, other: Tally, sign: int = 1) -> Tally:
        """The groups of both, or (``sign`` -1) those of this one that are not the other's."""
        return Tally(
            self.groups + sign * other.groups,
            self.replies + sign * other.replies,
            self.tokens + sign * other.tokens,
            self.scored + sign * other.scored,
            self.reward + sign * other.reward,
            [a + sign * b for a, b in zip(self.lengths, other.lengths, strict=True)],
            _joined(self.sources, other.sources, sign),
            _joined(self.difficulties, other.difficulties, sign),
        )

    @property
    def length(self) -> float | None:
        """Mean tokens of a reply."""
        return self.tokens / self.replies if self.replies else None

    @property
    def mean_reward(self) -> float | None:
        """Mean reward of the replies that have one: how easy the prompts were."""
        return self.reward / self.scored if self.scored else None


class Audit(Struct):
    """Tallies by fate: trained, or the reason why not."""

    fates: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def add(self, facts: Facts, reason: str) -> None:
        """Account for a group."""
        self.fates.setdefault(reason or TRAINED, Tally()).add(facts)

    def figures(self) -> dict[str, float]:
        """How trained groups differ from all that were sampled, and by which reason; plain figures.

        ``length``, ``reward``: means. ``length_shift``: the largest difference between the cumulative shares
        of replies up to a length, in powers of two. ``source_shift``, ``difficulty_shift``: the share of
        groups that would have to be of another source or difficulty (total variation). For each reason its
        share of the groups, their means, and how much larger the mean of all would be without them.
        A figure over nothing is left out.
        """
        whole = Tally()
        for tally in self.fates.values():
            whole = whole.plus(tally)
        if not whole.groups:
            return {}
        found = _means("sampled", whole)
        trained = self.fates.get(TRAINED)
        if trained is not None:
            found |= _means(TRAINED, trained)
            found["audit/length_shift"] = _shift(whole.lengths, trained.lengths)
            found["audit/source_shift"] = _variation(whole.sources, trained.sources)
            found["audit/difficulty_shift"] = _variation(whole.difficulties, trained.difficulties)
        for reason, tally in sorted(self.fates.items()):
            if reason == TRAINED:
                continue
            found[f"audit/dropped/{reason}/share"] = tally.groups / whole.groups
            found |= _means(f"dropped/{reason}", tally)
            rest = whole.plus(tally, -1)
            for name, without, all_ in (
                ("length", rest.length, whole.length),
                ("reward", rest.mean_reward, whole.mean_reward),
            ):
                if without is not None and all_ is not None:
                    found[f"audit/dropped/{reason}/{name}_bias"] = without - all_
        return found


def _means(name: str, tally: Tally) -> dict[str, float]:
    found = {f"audit/{name}/groups": float(tally.groups)}
    for what, mean in (("length", tally.length), ("reward", tally.mean_reward)):
        if mean is not None:
            found[f"audit/{name}/{what}"] = mean
    return found


def _shift(all_: list[int], some: list[int]) -> float:
    total, part = sum(all_), sum(some)
    largest, up_to, part_up_to = 0.0, 0, 0
    for a, b in zip(all_, some, strict=True):
        up_to, part_up_to = up_to + a, part_up_to + b
        if total and part:
            largest = max(largest, abs(up_to / total - part_up_to / part))
    return largest


def _variation(all_: dict[str, int], some: dict[str, int]) -> float:
    total, part = sum(all_.values()), sum(some.values())
    if not total or not part:
        return 0.0
    return sum(abs(all_.get(n, 0) / total - some.get(n, 0) / part) for n in all_.keys() | some.keys()) / 2


def _joined(a: dict[str, int], b: dict[str, int], sign: int) -> dict[str, int]:
    joined = {name: a.get(name, 0) + sign * b.get(name, 0) for name in a.keys() | b.keys()}
    return {name: count for name, count in joined.items() if count}
