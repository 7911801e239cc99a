"""The dataflow of one process: sample a batch, filter it, refill it, hand it over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Protocol, Unpack

from whetstone.algorithm.spec import AlgorithmSpec
from whetstone.engine.base import Engine, SamplingParams
from whetstone.flow.base import FlowBatch
from whetstone.flow.filters import drop_reason
from whetstone.flow.source import PromptSource, stream_seed
from whetstone.judge import Wishes
from whetstone.problem import Problem, Program
from whetstone.sample import Batch, Group
from whetstone.verdict import Judgement
from whetstone.workflow.single_turn import SingleTurn


class WishJudge(Protocol):
    """What the flow needs of a judge: one that can judge a seeded subset of a problem's cases."""

    async def judge(self, problem: Problem, program: Program, **wishes: Unpack[Wishes]) -> Judgement:
        """The verdict on one program."""
        ...


class _GroupJudge:
    """The judge of one group: all replies to a prompt meet the same cases."""

    def __init__(self, judge: WishJudge, wishes: Wishes) -> None:
        self._judge = judge
        self._wishes = wishes

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        return await self._judge.judge(problem, program, **self._wishes)


class LocalFlow:
    """Samples each batch on demand from an engine and a judge of this process (synchronous RL)."""

    def __init__(
        self,
        source: PromptSource,
        workflow: SingleTurn,
        engine: Engine,
        judge: WishJudge,
        spec: AlgorithmSpec,
        params: SamplingParams,
        *,
        prompts_per_step: int,
        samples_per_prompt: int,
        seed: int,
        max_cases: int | None = None,
    ) -> None:
        """``max_cases``: judge at most so many cases of a problem, chosen anew for each group."""
        self._source = source
        self._workflow = workflow
        self._engine = engine
        self._judge = judge
        self._spec = spec
        self._params = params
        self._prompts = prompts_per_step
        self._n = samples_per_prompt
        self._seed = seed
        self._max_cases = max_cases

    async def next_batch(self, version: int) -> FlowBatch:
        """Sample ``prompts_per_step`` groups under weight ``version``; drop those without a signal.

        With ``refill_rounds`` (dynamic sampling) dropped groups are replaced by fresh prompts, at
        most that often; the batch may still end up short, or empty, and says so in ``dropped``.
        Raises RuntimeError when the engine serves other weights than asked for.
        """
        if self._engine.version != version:
            raise RuntimeError(f"asked for weights {version}, the engine serves {self._engine.version}")
        kept: list[Group] = []
        sampled: list[Group] = []
        dropped: Counter[str] = Counter()
        for _ in range(1 + self._spec.refill_rounds):
            missing = self._prompts - len(kept)
            if not missing:
                break
            groups = await asyncio.gather(*(self._group(*drawn) for drawn in self._source.take(missing)))
            for group in groups:
                sampled.append(group)
                reason = drop_reason(group, drop_zero_variance=self._spec.drop_zero_variance)
                if reason is None:
                    kept.append(group)
                else:
                    dropped[reason] += 1
        return FlowBatch(Batch(groups=kept, dropped=dict(dropped)), sampled)

    def state(self) -> dict[str, Any]:
        """How many prompts were drawn: everything else follows from it."""
        return {"drawn": self._source.drawn}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the prompt after the last one of ``state``."""
        self._source.drawn = int(state["drawn"])

    async def _group(self, draw: int, problem: Problem) -> Group:
        wishes = Wishes()
        if self._max_cases is not None:
            subset_seed = stream_seed("cases", self._seed, draw)
            wishes = Wishes(max_cases=self._max_cases, subset_seed=subset_seed)
        return await self._workflow.run(
            problem,
            self._engine,
            _GroupJudge(self._judge, wishes),
            params=self._params,
            n=self._n,
            seed=stream_seed("rollout", self._seed, draw),
        )
