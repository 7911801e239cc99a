"""The flow of synchronous RL: sample a batch, filter it, refill it, return it; for one model or several.

Several models train on the same episodes: a finished prompt gives one group for each. Several processes each
sample their part of a round and then exchange all groups. So every process decides what to draw next in the
same way, and as a single process would.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.problem import Problem
from whetstone.core.sample import Batch, Group
from whetstone.engine.engine import Sleeper
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.batch_composition import SURPLUS
from whetstone.rollout.flow import Flow, FlowBatch, FlowReport, ProcessGroup
from whetstone.rollout.group_facts import drop_reason, facts_of
from whetstone.rollout.ledger import TokenLedger
from whetstone.rollout.replica import SamplingProgress
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource


class _SampledDraw(Struct, frozen=True, array_like=True):
    """A sampled prompt: the number of generated tokens and the group, by model."""

    generated: dict[str, int]
    groups: dict[str, Group]


class LocalFlow:
    """Samples the batches of all models with the engines and the judge of this process (synchronous RL).

    Sampling begins once each model has requested its batch, at the same version. Every model has its own
    filters. New rounds replace dropped groups until the model with the fewest groups has a full batch.
    Groups that a model does not need are dropped as surplus.
    """

    def __init__(
        self,
        source: PromptSource[Problem],
        sample: GroupSampler,
        replies: Mapping[str, EngineReplies],
        specs: Mapping[str, Algorithm],
        *,
        prompts_per_step: int,
        process_group: ProcessGroup | None = None,
    ) -> None:
        """``replies``, ``specs``: by model. ``process_group``: the processes that share the prompts, each
        with its own engines and judge; None for a single process."""
        self._source, self._sample = source, sample
        self._replies, self._specs = replies, specs
        self._prompts = prompts_per_step
        self._process_group = process_group
        self._requests: dict[str, tuple[int, asyncio.Future[FlowBatch]]] = {}
        self._ledgers = {name: TokenLedger() for name in specs}

    def for_model(self, model: str) -> Flow:
        """Return the flow of one model's trainer."""
        return _ModelFlow(self, model)

    async def batch(self, model: str, version: int) -> FlowBatch:
        """Return ``prompts_per_step`` groups, sampled with weights of ``version``, or of version 0 if the
        algorithm samples with those; drop those without a learning signal.

        With ``refill_rounds`` (dynamic sampling) new prompts replace dropped groups, for at most that many
        rounds. The batch may still be short or empty; ``dropped`` then has the counts. Raises RuntimeError if
        an engine serves another version.
        """
        own: asyncio.Future[FlowBatch] = asyncio.get_running_loop().create_future()
        self._requests[model] = (version, own)
        if len(self._requests) == len(self._specs):
            requests, self._requests = self._requests, {}
            try:
                batches = await self._sample_batches({name: at for name, (at, _) in requests.items()})
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

    async def _sample_batches(self, versions: Mapping[str, int]) -> dict[str, FlowBatch]:
        self._check_versions(versions)
        kept: dict[str, list[Group]] = {name: [] for name in self._specs}
        sampled: dict[str, list[Group]] = {name: [] for name in self._specs}
        dropped: dict[str, Counter[str]] = {name: Counter() for name in self._specs}
        for _ in range(1 + max(spec.refill_rounds for spec in self._specs.values())):
            missing = self._prompts - min(map(len, kept.values()))
            if not missing:
                break
            # A whole round at a time, in draw order. The groups share the engine's batch, and the last bits
            # of a row's logits depend on the other rows, so a resumed run has to compose the same batch. For
            # the same reason no group is replaced before the whole round is judged: the first verdict depends
            # on the load of the machine, which must not decide what is drawn next.
            drawn = await self._sample_round(self._source.take(missing))
            for name, spec in self._specs.items():
                groups = [each.groups[name] for each in drawn]
                reasons = self._drop_reasons(spec, groups, len(kept[name]))
                sampled[name] += groups
                kept[name] += [group for group, reason in zip(groups, reasons, strict=True) if reason is None]
                dropped[name].update(reason for reason in reasons if reason is not None)
                facts = [facts_of(group, spec) for group in groups]
                generated = sum(each.generated[name] for each in drawn)
                self._ledgers[name].train(generated, zip(facts, reasons, strict=True))
        # The dropped groups are returned too: rollouts and metrics report everything that was sampled.
        return {name: FlowBatch(Batch(kept[name], dict(dropped[name])), sampled[name]) for name in kept}

    def _check_versions(self, versions: Mapping[str, int]) -> None:
        """Raise RuntimeError if a model is at another version, or its engine serves another one."""
        # The loss assumes that the replies were sampled with the weights that it is about to change, or with
        # those of the start. A failed weight update would not be noticed anywhere else.
        expected = {
            name: 0 if self._specs[name].samples_with_start else version for name, version in versions.items()
        }
        served = {name: replies.version for name, replies in self._replies.items()}
        if expected != served or len(set(versions.values())) > 1:
            raise RuntimeError(f"asked for weights {expected}, the engines serve {served}")

    def _drop_reasons(self, spec: Algorithm, groups: list[Group], kept: int) -> list[str | None]:
        """Return the drop reason of each group; None for those that join the ``kept`` ones."""
        reasons: list[str | None] = []
        for group in groups:
            reason = drop_reason(group, spec)
            if reason is None and kept == self._prompts:
                reason = SURPLUS
            kept += reason is None
            reasons.append(reason)
        return reasons

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
        return _SampledDraw({name: its.tokens for name, its in progress.items()}, groups)

    def state(self, model: str) -> dict[str, Any]:
        """Return the number of drawn prompts, which determines everything else, and the account of the
        tokens."""
        return {"drawn": self._source.drawn, "tokens": self._ledgers[model].saved()}

    def restore(self, model: str, state: dict[str, Any]) -> None:
        """Continue with the prompt after the last one of ``state``. All models restore the same step."""
        self._source.drawn = int(state["drawn"])
        self._ledgers[model] = TokenLedger.restored(state.get("tokens", {}))

    def report(self, model: str) -> FlowReport:
        """Return the account of a model's tokens."""
        return FlowReport(self._ledgers[model].totals({}))


class _ModelFlow:
    """The flow of one model's trainer; see ``Flow``."""

    def __init__(self, flow: LocalFlow, model: str) -> None:
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
        """See Flow."""
        self._flow.restore(self._model, state)


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
