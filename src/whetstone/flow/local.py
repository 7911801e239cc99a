"""The dataflow of synchronous RL: sample a batch, filter it, refill it, hand it over.

Several processes each sample their share of a round and then have all of it, so that what comes next is
decided alike everywhere, and as one process alone would decide it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec

from whetstone.algorithm.algorithm import Algorithm
from whetstone.flow.filters import drop_reason
from whetstone.flow.flow import Crew, FlowBatch
from whetstone.flow.sampling import GroupSampler
from whetstone.flow.source import PromptSource
from whetstone.problem import Problem
from whetstone.sample import Batch, Group
from whetstone.workflow.episode import Workflow
from whetstone.workflow.replies import EngineReplies


class LocalFlow:
    """Samples each batch on demand from an engine and a judge of this process (synchronous RL)."""

    def __init__(
        self,
        source: PromptSource[Problem],
        workflow: Workflow,
        replies: EngineReplies,
        spec: Algorithm,
        *,
        prompts_per_step: int,
        samples_per_prompt: int,
        seed: int,
        max_cases: int | None = None,
        crew: Crew | None = None,
        together: bool = False,
    ) -> None:
        """``max_cases``, ``together``: see ``GroupSampler``. ``crew``: the processes that share the prompts,
        each with an engine and a judge of its own; None for one alone."""
        self._source = source
        self._replies = replies
        self._sample = GroupSampler(workflow, replies, samples_per_prompt, seed, max_cases, together=together)
        self._spec = spec
        self._prompts = prompts_per_step
        self._crew = crew

    async def next_batch(self, version: int) -> FlowBatch:
        """Sample ``prompts_per_step`` groups under weight ``version``; drop those without a signal.

        With ``refill_rounds`` (dynamic sampling) dropped groups are replaced by fresh prompts, at
        most that often; the batch may still end up short, or empty, and says so in ``dropped``.
        Raises RuntimeError when the engine serves other weights than asked for.
        """
        # The loss takes replies for draws of the weights that it is about to change. A hand-over of
        # weights that went wrong would fail nowhere else.
        if self._replies.version != version:
            raise RuntimeError(f"asked for weights {version}, the engine serves {self._replies.version}")
        kept: list[Group] = []
        sampled: list[Group] = []
        dropped: Counter[str] = Counter()
        for _ in range(1 + self._spec.refill_rounds):
            missing = self._prompts - len(kept)
            if not missing:
                break
            # A whole round at once, in the order of its draws: the groups share the engine's batch, and
            # the last bits of a row's logits depend on the other rows, so a resumed run has to compose it
            # alike. For the same reason no group is replaced before the whole round is judged: which
            # verdict comes first depends on the load of the machine, and must not decide what is drawn next.
            for group in await self._round(self._source.take(missing)):
                sampled.append(group)
                reason = drop_reason(group, drop_zero_variance=self._spec.drop_zero_variance)
                if reason is None:
                    kept.append(group)
                else:
                    dropped[reason] += 1
        # What was dropped goes along: rollouts and metrics tell of everything that was sampled.
        return FlowBatch(Batch(groups=kept, dropped=dict(dropped)), sampled)

    def state(self) -> dict[str, Any]:
        """How many prompts were drawn: everything else follows from it."""
        return {"drawn": self._source.drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the prompt after the last one of ``state``."""
        self._source.drawn = int(state["drawn"])

    async def _round(self, drawn: list[tuple[int, Problem]]) -> list[Group]:
        """A group for each drawn prompt, in their order, whichever process samples it.

        They are dealt like cards: neighbours in a sorted dataset are of like length, so shares are, too.
        """
        crew = self._crew
        if crew is None or crew.size == 1:
            return await asyncio.gather(*(self._group(*one) for one in drawn))
        mine = await asyncio.gather(*(self._group(*one) for one in drawn[crew.rank :: crew.size]))
        told = crew.gather(msgspec.msgpack.encode(mine), "the samples of a round")
        groups: list[Group | None] = [None] * len(drawn)
        for rank, share in enumerate(told):
            groups[rank :: crew.size] = msgspec.msgpack.decode(share, type=list[Group])
        return [group for group in groups if group is not None]

    async def _group(self, draw: int, problem: Problem) -> Group:
        [group] = (await self._sample(draw, problem)).values()
        return group
