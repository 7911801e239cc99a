"""The synchronous flow of several models that train on the same episodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.problem import Problem
from whetstone.core.sample import Batch, Group
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.batch_composition import SURPLUS
from whetstone.rollout.filters import drop_reason
from whetstone.rollout.flow import FlowBatch, FlowReport
from whetstone.rollout.group_facts import facts_of
from whetstone.rollout.ledger import TokenLedger
from whetstone.rollout.replica import SamplingProgress
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource


class SharedFlow:
    """Samples the batches of all models once each model has requested one, at the same version.

    Every model has its own filters. New rounds replace dropped groups until the model with the fewest groups
    has a full batch. Groups that a model does not need are dropped as surplus. Rounds are drawn as in
    ``LocalFlow``.
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
        self._requests: dict[str, tuple[int, asyncio.Future[FlowBatch]]] = {}
        self._ledgers = {name: TokenLedger() for name in specs}

    def for_model(self, model: str) -> _ModelFlow:
        """Return the ``Flow`` of one model."""
        return _ModelFlow(self, model)

    async def batch(self, model: str, version: int) -> FlowBatch:
        """Return the batch of a model, which is sampled once every other model has requested its own.

        Raises RuntimeError if an engine serves another version.
        """
        own: asyncio.Future[FlowBatch] = asyncio.get_running_loop().create_future()
        self._requests[model] = (version, own)
        if len(self._requests) == len(self._specs):
            requests, self._requests = self._requests, {}
            try:
                batches = await self._batches({name: at for name, (at, _) in requests.items()})
            except BaseException as error:
                for _, waiting in requests.values():
                    # Every trainer waits for this call, and must end if it fails.
                    if waiting is not own and not waiting.done():
                        waiting.cancel()
                raise error
            for name, (_, waiting) in requests.items():
                if not waiting.done():
                    waiting.set_result(batches[name])
        return await own

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
            progress: list[SamplingProgress] = [{} for _ in drawn]
            # All groups at once and in draw order, for the reason given in ``LocalFlow``.
            sampled_now = await asyncio.gather(
                *(self._sample(*one, its) for one, its in zip(drawn, progress, strict=True))
            )
            for name, spec in self._specs.items():
                groups = [each[name] for each in sampled_now]
                reasons = self._reasons(spec, groups, len(kept[name]))
                sampled[name] += groups
                kept[name] += [group for group, reason in zip(groups, reasons, strict=True) if reason is None]
                dropped[name].update(reason for reason in reasons if reason is not None)
                facts = [facts_of(group, spec) for group in groups]
                generated = sum(its[name].tokens for its in progress)
                self._ledgers[name].train(generated, zip(facts, reasons, strict=True))
        return {name: FlowBatch(Batch(kept[name], dict(dropped[name])), sampled[name]) for name in kept}

    def _reasons(self, spec: Algorithm, groups: list[Group], kept: int) -> list[str | None]:
        """Return the drop reason of each group; None for those that join the ``kept`` ones."""
        reasons: list[str | None] = []
        for group in groups:
            reason = drop_reason(group, spec)
            if reason is None and kept == self._prompts:
                reason = SURPLUS
            kept += reason is None
            reasons.append(reason)
        return reasons

    def state(self, model: str) -> dict[str, Any]:
        """See Flow."""
        return {"drawn": self._source.drawn, "tokens": self._ledgers[model].saved()}

    def restore(self, model: str, state: dict[str, Any]) -> None:
        """See Flow."""
        self._source.drawn = int(state["drawn"])
        self._ledgers[model] = TokenLedger.restored(state.get("tokens", {}))

    def report(self, model: str) -> FlowReport:
        """See Flow."""
        return FlowReport(self._ledgers[model].totals({}))


class _ModelFlow:
    """The flow of one model's trainer."""

    def __init__(self, flow: SharedFlow, model: str) -> None:
        self._flow, self._model = flow, model

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Returns when the other models have also requested their batches."""
        return await self._flow.batch(self._model, version)

    async def report(self) -> FlowReport:
        """See Flow."""
        return self._flow.report(self._model)

    def state(self) -> dict[str, Any]:
        """See Flow."""
        return self._flow.state(self._model)

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow. All models restore the same step."""
        self._flow.restore(self._model, state)
