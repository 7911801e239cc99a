"""The dataflow of several models that learn from the same episodes, sampled in turn with learning."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from whetstone.algorithm.algorithm import Algorithm
from whetstone.flow.composing import SURPLUS
from whetstone.flow.filters import drop_reason
from whetstone.flow.flow import FlowBatch
from whetstone.flow.sampling import GroupSampler
from whetstone.flow.source import PromptSource
from whetstone.problem import Problem
from whetstone.sample import Batch, Group
from whetstone.workflow.replies import EngineReplies


class SharedFlow:
    """Samples the batches of all models when each of them is at the same version, and has asked for one.

    Every model has filters of its own; dropped groups are replaced, by rounds, until the model that lacks
    most has a batch. What a model does not need of these rounds is dropped as surplus. Rounds are drawn as
    ``LocalFlow`` draws them.
    """

    def __init__(
        self,
        source: PromptSource[Problem],
        sample: GroupSampler,
        replies: Mapping[str, EngineReplies],
        specs: Mapping[str, Algorithm],
        *,
        prompts_per_step: int,
    ) -> None:
        self._source, self._sample = source, sample
        self._replies, self._specs = replies, specs
        self._prompts = prompts_per_step
        self._asked: dict[str, tuple[int, asyncio.Future[FlowBatch]]] = {}

    def of(self, model: str) -> SharedFlowOf:
        """The ``Flow`` of one model."""
        return SharedFlowOf(self, model)

    async def batch(self, model: str, version: int) -> FlowBatch:
        """The batch of a model, sampled as soon as every other one has asked for its own.

        Raises RuntimeError when an engine serves other weights than asked for.
        """
        mine: asyncio.Future[FlowBatch] = asyncio.get_running_loop().create_future()
        self._asked[model] = (version, mine)
        if len(self._asked) == len(self._specs):
            asked, self._asked = self._asked, {}
            try:
                batches = await self._batches({name: at for name, (at, _) in asked.items()})
            except BaseException as error:
                for _, waiting in asked.values():
                    if waiting is not mine and not waiting.done():
                        waiting.cancel()
                raise error
            for name, (_, waiting) in asked.items():
                if not waiting.done():
                    waiting.set_result(batches[name])
        return await mine

    async def _batches(self, versions: Mapping[str, int]) -> dict[str, FlowBatch]:
        served = {name: replies.version for name, replies in self._replies.items()}
        if dict(versions) != served or len(set(served.values())) > 1:
            raise RuntimeError(f"asked for weights {dict(versions)}, the engines serve {served}")
        kept: dict[str, list[Group]] = {name: [] for name in self._specs}
        sampled: dict[str, list[Group]] = {name: [] for name in self._specs}
        dropped: dict[str, Counter[str]] = {name: Counter() for name in self._specs}
        for _ in range(1 + max(spec.refill_rounds for spec in self._specs.values())):
            missing = self._prompts - min(map(len, kept.values()))
            if not missing:
                break
            drawn = self._source.take(missing)
            # Together and in the order of draws, for the reason that ``LocalFlow`` gives.
            for groups in await asyncio.gather(*(self._sample(*one) for one in drawn)):
                for name, group in groups.items():
                    sampled[name].append(group)
                    reason = drop_reason(group, drop_zero_variance=self._specs[name].drop_zero_variance)
                    if reason is None and len(kept[name]) == self._prompts:
                        reason = SURPLUS
                    if reason is None:
                        kept[name].append(group)
                    else:
                        dropped[name][reason] += 1
        return {name: FlowBatch(Batch(kept[name], dict(dropped[name])), sampled[name]) for name in kept}

    def state(self) -> dict[str, Any]:
        """See Flow."""
        return {"drawn": self._source.drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow."""
        self._source.drawn = int(state["drawn"])


class SharedFlowOf:
    """What one model's trainer sees of it."""

    def __init__(self, flow: SharedFlow, model: str) -> None:
        self._flow, self._model = flow, model

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow; it comes when the other models have asked, too."""
        return await self._flow.batch(self._model, version)

    def state(self) -> dict[str, Any]:
        """See Flow."""
        return self._flow.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow. All models come from the same step."""
        self._flow.restore(state)
