"""How long replies last compared with steps, and which settings let an asynchronous run keep pace.

The throughput bound of a run is that of the slower of training and generation alone: a step then takes the
time in which the trainer trains, or in which the replies in flight make the groups of a batch. Replies that
outlast ``staleness`` steps keep a run below it: its batches wait for them, or their tokens are dropped.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from msgspec import Struct, structs

from whetstone.rollout.flow_rules import BatchComposition

TARGET = 0.95
"""The share of the throughput bound that advice is for."""
LEAST_GROUPS = 64
"""With fewer measured groups nothing is said."""
# The estimate is a little too high where judging takes long, so advice aims higher than the target.
_AIM, _SPARE = 0.97, 2.5
_STEPS, _FIRST = 70, 10
_REPLIES = 4000
_MOST_STALENESS, _MOST_GROWTH = 64, 16
_WAYS = {
    "staleness": "`flow.staleness: {}`",
    "prompts": "`trainer.prompts_per_step: {}`",
    "in_flight": "at most {} prompts in flight (`flow.room` of all replicas)",
}


class ReplyClock:
    """Measures the seconds of a token of one reply, from the versions of the tokens.

    The reply with the most tokens of a version, of those that also have tokens of another one, was written
    for as long as the version was the newest.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._most: dict[int, int] = {}
        self._last: float | None = None

    def add(self, version: int, now: float, replies: Iterable[Mapping[int, int]]) -> float | None:
        """Note that ``version`` is the newest from ``now`` on (seconds), and the replies that were ended
        since: their tokens by version. Return the seconds of a token; None if too little is known."""
        if self._last is not None:
            self._seconds[version - 1] = now - self._last
        self._last = now
        for reply in replies:
            for written, tokens in reply.items() if len(reply) > 1 else ():
                self._most[written] = max(tokens, self._most.get(written, 0))
        # Replies with more tokens of the newest versions have not ended yet.
        known = [each for each in self._most.keys() & self._seconds.keys() if each < version - 2]
        tokens = sum(self._most[each] for each in known)
        return sum(self._seconds[each] for each in known) / tokens if tokens else None


class MeasuredFlow(Struct, frozen=True):
    """What a run measured, and the settings that it ran with.

    prompts: groups of a batch. durations: seconds from the first to the last token of each group that ended.
    in_flight: the most groups that were written at once. without_signal: the share of groups that are dropped
    for another reason than their age. step_s, train_s: mean seconds of a step, and of its training. wasted:
    the share of tokens that were dropped for their age.
    """

    rule: BatchComposition
    staleness: int
    prompts: int
    durations: list[float]
    in_flight: float
    without_signal: float
    step_s: float
    train_s: float
    wasted: float = 0.0

    @property
    def _sampled(self) -> float:
        """Groups that have to be sampled for a batch."""
        return self.prompts / (1 - self.without_signal)

    def bound_s(self) -> float:
        """Return the seconds of a step at the throughput bound."""
        return max(self.train_s, self._sampled * fmean(self.durations) / self.in_flight)

    def reached(self) -> float:
        """Return the trained tokens of the run as a share of those at the bound."""
        return min(1.0, self.bound_s() / self.step_s) * (1 - self.wasted)

    def changed(self, **settings: float) -> MeasuredFlow:
        """Return what would have been measured with other settings. Training takes as long for a group."""
        other = structs.replace(self, **settings)
        return structs.replace(other, train_s=self.train_s * other.prompts / self.prompts)

    def keeps_pace(self) -> bool:
        """Return whether these settings are estimated to reach ``TARGET``."""
        step = self.bound_s()
        # While the trainer trains, no prompt is drawn once two thirds of the next batch are ready. Replicas
        # need more prompts than they write at once, so that none of them waits for one.
        may_wait = (self.staleness - 2 / 3) * self.prompts
        if step > self.train_s and may_wait < _SPARE * self.in_flight:
            return False
        return self._kept(step) >= _AIM

    def _kept(self, step: float) -> float:
        """Estimate the trained tokens as a share of those at the bound, where a step takes ``step`` s."""
        rng = random.Random(0)
        if self.rule in ("wait", "window"):
            return self._waiting(step, rng)
        kept = total = 0.0
        for duration in rng.choices(self.durations, k=_REPLIES):
            begin = step * rng.random()
            # The batch of this version is the next one after the end of the group.
            version = max(1, math.ceil((begin + duration - step + self.train_s) / step))
            too_old = max(0.0, (version - self.staleness) * step - begin)
            kept += duration - min(duration, too_old) if self.rule == "mask" else duration * (not too_old)
            total += duration
        return kept / total

    def _waiting(self, step: float, rng: random.Random) -> float:
        """Return the share if each batch waits for the groups that no later one may use."""
        count = max(1, round(self._sampled))
        times, due = [0.0], list[float]()
        for version in range(_STEPS):
            groups = enumerate(rng.choices(self.durations, k=count))
            due.append(times[-1] + max(step * place / count + duration for place, duration in groups))
            ready = times[-1] + step - self.train_s
            if version >= self.staleness:
                ready = max(ready, due[version - self.staleness])
            times.append(ready + self.train_s)
        return step * (_STEPS - _FIRST) / (times[-1] - times[_FIRST])

    def remedies(self) -> dict[str, int]:
        """Return the least staleness, the smallest batch, and the most prompts in flight that keep pace, by
        field. A field that cannot is left out."""
        values = {
            "staleness": range(self.staleness, _MOST_STALENESS + 1),
            "prompts": range(self.prompts, _MOST_GROWTH * self.prompts + 1),
            "in_flight": range(math.floor(self.in_flight), 0, -1),
        }
        found: dict[str, int] = {}
        for name, tried in values.items():
            place = bisect_left(tried, True, key=lambda value: self.changed(**{name: value}).keeps_pace())
            if place < len(tried):
                found[name] = tried[place]
        return found

    def advice(self) -> Iterator[tuple[str, str]]:
        """Yield titles and texts: what was measured, what is reached, and which setting would reach
        ``TARGET``. Nothing for fewer than ``LEAST_GROUPS`` groups."""
        if len(self.durations) < LEAST_GROUPS:
            return
        longest, bound = sorted(self.durations)[-1 - len(self.durations) // 100], self.bound_s()
        yield (
            "replies",
            f"one group in 100 is written for {longest:.3g} s or longer, {longest / bound:.1f} steps of "
            f"{bound:.3g} s at the throughput bound; a step takes {self.step_s:.3g} s",
        )
        reached, remedies = self.reached(), self.remedies()
        yield (
            "throughput",
            f"{reached:.2f} of the bound of {self.in_flight:.0f} prompts in flight, with staleness "
            f"{self.staleness}",
        )
        if self.keeps_pace():
            yield "staleness", "replies do not outlast it: no other value would help"
            return
        title = f"{TARGET} needs"
        if reached >= TARGET:
            # The engines may have places that the staleness does not let them fill.
            title = "more prompts in flight need"
            remedies.pop("in_flight", None)
        ways = [_WAYS[name].format(value) for name, value in remedies.items()]
        yield title, ", or ".join(ways) or "shorter replies (`sampling.max_tokens`)"
        yield (
            "this assumes",
            f"replies as long and as fast as now, at most {self.in_flight:.0f} prompts in flight, and "
            "judging that keeps up; fewer prompts in flight have a lower bound, in proportion",
        )
