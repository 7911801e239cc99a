"""The flow of synchronous RL: sample a batch, filter it, refill it, return it.

Several processes each sample their part of a round and then exchange all groups. So every process decides
what to draw next in the same way, and as a single process would.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.problem import Problem
from whetstone.core.sample import Batch, Group
from whetstone.engine.engine import Sleeper
from whetstone.environments.environment import Environment
from whetstone.environments.episode import ProgramJudge
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.filters import drop_reason
from whetstone.rollout.flow import Flow, FlowBatch, FlowReport, ProcessGroup
from whetstone.rollout.group_facts import facts_of
from whetstone.rollout.ledger import TokenLedger
from whetstone.rollout.replica import SamplingProgress
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource


class LocalFlow:
    """Samples each batch on demand with an engine and a judge in this process (synchronous RL)."""

    def __init__(
        self,
        source: PromptSource[Problem],
        environment: Environment,
        judge: ProgramJudge,
        replies: EngineReplies,
        spec: Algorithm,
        *,
        prompts_per_step: int,
        samples_per_prompt: int,
        seed: int,
        max_cases: int | None = None,
        process_group: ProcessGroup | None = None,
        batch_turns: bool = False,
    ) -> None:
        """``max_cases``, ``batch_turns``: see ``GroupSampler``. ``process_group``: the processes that share
        the prompts, each with its own engine and judge; None for a single process."""
        self._source = source
        self._replies = replies
        self._sample = GroupSampler(
            environment, judge, replies, samples_per_prompt, seed, max_cases, batch_turns=batch_turns
        )
        self._spec = spec
        self._prompts = prompts_per_step
        self._process_group = process_group
        self._ledger = TokenLedger()

    async def next_batch(self, version: int) -> FlowBatch:
        """Sample ``prompts_per_step`` groups with weights of ``version``, or of version 0 if the algorithm
        samples with those; drop those without a learning signal.

        With ``refill_rounds`` (dynamic sampling) new prompts replace dropped groups, for at most that many
        rounds. The batch may still be short or empty; ``dropped`` then has the counts. Raises RuntimeError if
        the engine serves another version.
        """
        # The loss assumes that the replies were sampled with the weights that it is about to change, or with
        # those of the start. A failed weight update would not be noticed anywhere else.
        expected = 0 if self._spec.samples_with_start else version
        if self._replies.version != expected:
            raise RuntimeError(f"asked for weights {expected}, the engine serves {self._replies.version}")
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
            generated, groups = await self._sample_round(self._source.take(missing))
            reasons = [drop_reason(group, self._spec) for group in groups]
            sampled += groups
            kept += [group for group, reason in zip(groups, reasons, strict=True) if reason is None]
            dropped.update(reason for reason in reasons if reason is not None)
            facts = [facts_of(group, self._spec) for group in groups]
            self._ledger.train(generated, zip(facts, reasons, strict=True))
        # The dropped groups are returned too: rollouts and metrics report everything that was sampled.
        return FlowBatch(Batch(groups=kept, dropped=dict(dropped)), sampled)

    def state(self) -> dict[str, Any]:
        """Return the number of drawn prompts, which determines everything else, and the account of the
        tokens."""
        return {"drawn": self._source.drawn, "tokens": self._ledger.saved()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the prompt after the last one of ``state``."""
        self._source.drawn = int(state["drawn"])
        self._ledger = TokenLedger.restored(state.get("tokens", {}))

    async def report(self) -> FlowReport:
        """See Flow."""
        return FlowReport(self._ledger.totals({}))

    async def _sample_round(self, drawn: list[tuple[int, Problem]]) -> tuple[int, list[Group]]:
        """Return the number of generated tokens and a group for each drawn prompt in draw order, whichever
        process samples it.

        Prompts are dealt round-robin: neighbours in a sorted dataset have similar lengths, so the shares have
        too.
        """
        group = self._process_group
        if group is None or group.size == 1:
            return await self._sample_share(drawn)
        # All processes draw the same prompts, so each knows its part without a message.
        own = await self._sample_share(drawn[group.rank :: group.size])
        shares = group.gather(msgspec.msgpack.encode(own), "the samples of a round")
        # In draw order again, so that the batch does not depend on the number of processes.
        groups: list[Group | None] = [None] * len(drawn)
        generated = 0
        for rank, share in enumerate(shares):
            tokens, groups[rank :: group.size] = msgspec.msgpack.decode(share, type=tuple[int, list[Group]])
            generated += tokens
        return generated, [group for group in groups if group is not None]

    async def _sample_share(self, drawn: list[tuple[int, Problem]]) -> tuple[int, list[Group]]:
        async def sample(draw: int, problem: Problem) -> tuple[int, Group]:
            progress: SamplingProgress = {}
            [group] = (await self._sample(draw, problem, progress)).values()
            return sum(its.tokens for its in progress.values()), group

        sampled = await asyncio.gather(*(sample(*one) for one in drawn))
        return sum(tokens for tokens, _ in sampled), [group for _, group in sampled]


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
