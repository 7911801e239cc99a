"""Stored rewards against those of today's judge: what changed, and what this does to advantages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from math import fsum

from msgspec import Struct

from whetstone.evaluate.passk import PairedDifference, paired_difference
from whetstone.integrations.rewards import Rewards, ScoredReply
from whetstone.report.rollouts import above_group
from whetstone_exam.rejudge.stored_replies import StoredReply

# Replies in judgement at once: enough for all workers, and few enough to keep memory small.
_IN_FLIGHT = 256
# Rewards are sums of a few floats. A smaller difference is rounding.
_SAME = 1e-6

UNKNOWN_PROBLEM = "no single problem found for its prompt or id"


class RejudgedReply(Struct, frozen=True):
    """A stored reply and its new reward: None without a verdict that counts.

    above, new_above: the reward minus the mean of its group, before and now; None without a reward.
    """

    stored: StoredReply
    reward: float | None
    verdict: str
    reason: str
    above: float | None = None
    new_above: float | None = None

    @property
    def changed(self) -> bool:
        """Whether the reward is another one."""
        old, new = self.stored.reward, self.reward
        if old is None or new is None:
            return old is None and new is not None
        return abs(old - new) > _SAME

    @property
    def transition(self) -> str:
        """The stored verdict (or reward) and today's verdict."""
        before = self.stored.verdict or _reward_name(self.stored.reward)
        return f"{before} -> {self.verdict or _reward_name(self.reward)}"

    @property
    def flipped(self) -> bool:
        """Whether the sign of its advantage is the opposite."""
        return (self.above or 0.0) * (self.new_above or 0.0) < -(_SAME**2)

    @property
    def shift(self) -> float:
        """The change of the reward above its group's mean."""
        return abs((self.new_above or 0.0) - (self.above or 0.0))


class RejudgeReport(Struct, frozen=True):
    """The figures of a comparison.

    replies: all that were read. judged: those with a new reward. distinct: different pairs of problem and
    reply, each judged once. no_verdict: those without a new reward, such as failures of the judge. skipped:
    those that could not be judged again, by reason. mean: rewards before and now, paired by problem; None if
    none was judged. signal_lost, signal_gained: groups whose rewards became all equal, or stopped being so.
    """

    replies: int
    judged: int
    distinct: int
    no_verdict: int
    skipped: dict[str, int]
    changed: list[RejudgedReply]
    transitions: dict[str, int]
    flipped: int
    groups: int
    signal_lost: int
    signal_gained: int
    mean: PairedDifference | None


def judge_again(
    replies: Sequence[StoredReply], rewards: Rewards, advance: Callable[[], None]
) -> tuple[list[RejudgedReply], int]:
    """Return the replies with their new rewards, and the number of different pairs of problem and reply.

    ``advance`` is called after each of these pairs. Replies that cannot be judged again must have been
    removed.
    Raises UserError if a problem or the environment does not support it.
    """
    distinct = {(reply.problem_id, reply.reply): reply.problem for reply in replies}
    results: dict[tuple[str, str], ScoredReply] = {}
    pending: deque[tuple[tuple[str, str], Future[ScoredReply]]] = deque()

    def settle() -> None:
        key, future = pending.popleft()
        results[key] = future.result()
        advance()

    for key, problem in distinct.items():
        pending.append((key, rewards.submit(key[1], problem)))
        if len(pending) >= _IN_FLIGHT:
            settle()
    while pending:
        settle()
    again = [_rejudged(reply, results[reply.problem_id, reply.reply]) for reply in replies]
    return _with_advantages(again), len(results)


def _rejudged(stored: StoredReply, scored: ScoredReply) -> RejudgedReply:
    judgement = scored.judgement
    verdict = judgement.verdict.value if judgement else ""
    return RejudgedReply(stored, scored.reward, verdict, judgement.reason if judgement else "")


def _with_advantages(replies: list[RejudgedReply]) -> list[RejudgedReply]:
    """Return the replies with their rewards above the means of their groups.

    A group is only compared over replies that have both rewards, so a missing verdict shifts no mean.
    """
    numbers: dict[tuple[int, int], int] = {}
    groups = [numbers.setdefault((r.stored.step, r.stored.group), len(numbers)) for r in replies]
    both = [r.stored.reward is not None and r.reward is not None for r in replies]
    before = above_group(
        groups, [r.stored.reward if ok else None for r, ok in zip(replies, both, strict=True)]
    )
    after = above_group(groups, [r.reward if ok else None for r, ok in zip(replies, both, strict=True)])
    return [
        RejudgedReply(r.stored, r.reward, r.verdict, r.reason, old, new)
        for r, old, new in zip(replies, before, after, strict=True)
    ]


def compare(replies: Sequence[StoredReply], again: Sequence[RejudgedReply], distinct: int) -> RejudgeReport:
    """Return the figures. ``again`` are those of ``replies`` that could be judged again."""
    changed = [reply for reply in again if reply.changed]
    signals = _signals(again)
    return RejudgeReport(
        replies=len(replies),
        judged=sum(reply.reward is not None for reply in again),
        distinct=distinct,
        no_verdict=sum(reply.reward is None for reply in again),
        skipped=dict(Counter(reason for reply in replies if (reason := obstacle(reply)))),
        changed=sorted(changed, key=lambda reply: -reply.shift),
        transitions=dict(Counter(reply.transition for reply in changed).most_common()),
        flipped=sum(reply.flipped for reply in again),
        groups=len(signals),
        signal_lost=sum(before and not now for before, now in signals),
        signal_gained=sum(now and not before for before, now in signals),
        mean=_mean(again),
    )


def obstacle(reply: StoredReply) -> str:
    """Return why a reply cannot be judged again, or an empty string."""
    return reply.obstacle or ("" if reply.problem is not None else UNKNOWN_PROBLEM)


def _signals(again: Iterable[RejudgedReply]) -> list[tuple[bool, bool]]:
    """For each group, whether its rewards differ: before, and now."""
    found: dict[tuple[int, int], tuple[bool, bool]] = {}
    for reply in again:
        key = (reply.stored.step, reply.stored.group)
        before, now = found.get(key, (False, False))
        found[key] = (before or abs(reply.above or 0.0) > _SAME, now or abs(reply.new_above or 0.0) > _SAME)
    return list(found.values())


def _mean(again: Iterable[RejudgedReply]) -> PairedDifference | None:
    rewards: dict[str, list[tuple[float, float]]] = {}
    for reply in again:
        if reply.stored.reward is not None and reply.reward is not None:
            rewards.setdefault(reply.stored.problem_id, []).append((reply.stored.reward, reply.reward))
    if not rewards:
        return None
    before, after = (
        {name: fsum(pair[side] for pair in pairs) / len(pairs) for name, pairs in rewards.items()}
        for side in (0, 1)
    )
    return paired_difference(before, after)


def _reward_name(reward: float | None) -> str:
    return "no reward" if reward is None else f"reward {reward:g}"
