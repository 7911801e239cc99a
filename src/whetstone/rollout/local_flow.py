"""The flow of synchronous RL: sample a batch, filter it, refill it, return it.

Several processes each sample their part of a round and then exchange all groups. So every process decides
what to draw next in the same way, and as a single process would.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.problem import Problem
from whetstone.core.sample import Batch, Group
from whetstone.engine.engine import ProcessGroup, Sleeper
from whetstone.environments.episode import POLICY
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.group_facts import drop_reason, facts_of
from whetstone.rollout.ledger import TokenLedger
from whetstone.rollout.protocol import Flow, FlowBatch, FlowReport
from whetstone.rollout.replica import SamplingProgress
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource


class _SampledDraw(Struct, frozen=True, array_like=True):
    """A sampled prompt: the number of generated tokens, and the group."""

    generated: int
    group: Group


class LocalFlow:
    """Samples the batches of a model with the engine and the judge of this process (synchronous RL)."""

    def __init__(
        self,
        source: PromptSource[Problem],
        sample: GroupSampler,
        replies: EngineReplies,
        spec: Algorithm,
        *,
        prompts_per_step: int,
        process_group: ProcessGroup | None = None,
    ) -> None:
        """``process_group``: the processes that share the prompts, each with its own engine and judge; None
        for a single process."""
        self._source, self._sample = source, sample
        self._replies, self._spec = replies, spec
        self._prompts = prompts_per_step
        self._process_group = process_group
        self._ledger = TokenLedger()

    async def next_batch(self, version: int) -> FlowBatch:
        """Return ``prompts_per_step`` groups, sampled with weights of ``version``, or of version 0 if the
        algorithm samples with those; drop those without a learning signal.

        With ``refill_rounds`` (dynamic sampling) new prompts replace dropped groups, for at most that many
        rounds. The batch may still be short or empty; ``dropped`` then has the counts. Raises RuntimeError if
        the engine serves another version.
        """
        # The loss assumes that the replies were sampled with the weights that it is about to change, or with
        # those of the start. A failed weight update would not be noticed anywhere else.
        expected, served = 0 if self._spec.samples_with_start else version, self._replies.version
        if expected != served:
            raise RuntimeError(f"asked for weights {expected}, the engine serves {served}")
        kept: list[Group] = []
        sampled: list[Group] = []
        dropped: Counter[str] = Counter()
        for _ in range(1 + self._spec.refill_rounds):
            missing = self._prompts - len(kept)
            if not missing:
                break
            # A whole round at a time, in draw order. The groups share the engine's batch, and the last bits
            # of a row's logits depend on the other rows, so a resumed run has to compose the same batch. For
            # the same reason no group is replaced before the whole round is judged: the first verdict depends
            # on the load of the machine, which must not decide what is drawn next.
            drawn = await self._sample_round(self._source.take(missing))
            groups = [each.group for each in drawn]
            reasons = [drop_reason(group, self._spec) for group in groups]
            sampled += groups
            kept += [group for group, reason in zip(groups, reasons, strict=True) if reason is None]
            dropped.update(reason for reason in reasons if reason is not None)
            facts = [facts_of(group, self._spec) for group in groups]
            generated = sum(each.generated for each in drawn)
            self._ledger.train(generated, zip(facts, reasons, strict=True))
        # The dropped groups are returned too: rollouts and metrics report everything that was sampled.
        return FlowBatch(Batch(kept, dict(dropped)), sampled)

    async def _sample_round(self, drawn: Sequence[tuple[int, Problem]]) -> list[_SampledDraw]:
        """Return the groups of each drawn prompt in draw order, whichever process samples it.

        Prompts are dealt round-robin: neighbours in a sorted dataset have similar lengths, so the shares have
        too.
        """
        processes = self._process_group
        if processes is None or processes.size == 1:
            return await asyncio.gather(*(self._sample_draw(*one) for one in drawn))
        # All processes draw the same prompts, so each knows its part without a message.
        own = drawn[processes.rank :: processes.size]
        sampled = await asyncio.gather(*(self._sample_draw(*one) for one in own))
        shares = processes.gather(msgspec.msgpack.encode(sampled), "the samples of a round")
        # In draw order again, so that the batch does not depend on the number of processes.
        found: list[_SampledDraw | None] = [None] * len(drawn)
        for rank, share in enumerate(shares):
            found[rank :: processes.size] = msgspec.msgpack.decode(share, type=list[_SampledDraw])
        return [each for each in found if each is not None]

    async def _sample_draw(self, draw: int, problem: Problem) -> _SampledDraw:
        progress: SamplingProgress = {}
        groups = await self._sample(draw, problem, progress)
        return _SampledDraw(progress[POLICY].tokens, groups[POLICY])

    async def report(self) -> FlowReport:
        """Return the account of the tokens."""
        return FlowReport(self._ledger.totals({}))

    def state(self) -> dict[str, Any]:
        """Return the number of drawn prompts, which determines everything else, and the account of the
        tokens."""
        return {"drawn": self._source.drawn, "tokens": self._ledger.saved()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the prompt after the last one of ``state``."""
        self._source.drawn = int(state["drawn"])
        self._ledger = TokenLedger.restored(state.get("tokens", {}))


class SharedDevices:
    """A Flow that puts ``engine`` to sleep once a batch is complete. The next weight update wakes the
    engine."""

    def __init__(self, flow: Flow, engine: Sleeper) -> None:
        self._flow = flow
        self._engine = engine

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow."""
        drawn = await self._flow.next_batch(version)
        await self._engine.sleep()
        return drawn

    async def report(self) -> FlowReport:
        """See Flow."""
        return await self._flow.report()

    def state(self) -> dict[str, Any]:
        """See Flow."""
        return self._flow.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow."""
        self._flow.restore(state)
