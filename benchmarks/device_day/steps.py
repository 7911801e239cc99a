"""Synchronous training steps by part, and how much of the judging passes during generation."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import (
    large_shape,
    new_trainer,
    random_loaded,
    seconds_of,
    synchronize,
    trained_or_random,
)
from benchmarks.trl_step import QUESTION, problems, sampling_flow
from whetstone.algorithm.named import algorithm_named
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement
from whetstone.engine.engine import Capabilities, Completion, Engine, GenerationRequest
from whetstone.engine.loading import LoadedModel
from whetstone.engine.memory import peak_bytes
from whetstone.engine.torch_engine import TorchEngine
from whetstone.judge import AsyncJudge
from whetstone.rollout.protocol import FlowBatch
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.trainer import Trainer

Interval = tuple[float, float]


class _Size(NamedTuple):
    """The number of steps, of prompts and replies to each in a step, and the longest reply in tokens."""

    steps: int
    prompts: int
    group: int
    tokens: int


def measure_steps(context: SectionContext) -> None:
    """Record steps of the trained model, or of a random one of its shape."""
    size = _Size(2, 2, 4, 16) if context.small else _Size(6, 8, 8, 256)
    asyncio.run(_measure(context, trained_or_random(context), size, checkpointing=False))


def measure_large_steps(context: SectionContext) -> None:
    """Record 20 steps of the large model; 3 in the rehearsal."""
    size = _Size(3, 2, 4, 16) if context.small else _Size(20, 16, 8, 256)
    loaded = random_loaded(context, large_shape(context), ends=True)
    asyncio.run(_measure(context, loaded, size, checkpointing=True))


async def _measure(context: SectionContext, loaded: LoadedModel, size: _Size, *, checkpointing: bool) -> None:
    trainer = new_trainer(
        loaded.model,
        size.tokens,
        prompts_per_step=size.prompts,
        samples_per_prompt=size.group,
        micro_batch_tokens=16_384,
        activation_checkpointing=checkpointing,
    )
    engine = TimedEngine(TorchEngine(trainer.plain_copy(), loaded.tokenizer, max_context=2048))
    context.note(model=loaded.source, **size._asdict())
    rows: list[dict[str, float]] = []
    async with AsyncJudge() as processes:
        judge = TimedJudge(processes)
        context.note(isolation=processes.isolation, workers=len(processes.worker_pids()))
        flow = sampling_flow(
            engine,
            loaded.tokenizer,
            judge,
            algorithm_named("dapo", {"drop_zero_variance": False, "refill_rounds": 0, "overlong_buffer": 0}),
            tasks=problems(64),
            environment={"prompt": QUESTION, "chat": loaded.tokenizer.chat_template is not None},
            sampling={"max_tokens": size.tokens},
            prompts=size.prompts,
            group=size.group,
        )
        for step in range(1, 1 + size.steps):
            rows.append(await _step(context, trainer, engine, judge, flow))
            context.record(number=step, **rows[-1])
    await engine.close()
    # The first step also warms up.
    usual = {name: statistics.median(row[name] for row in rows[1:]) for name in rows[0]}
    context.record(number="median", **usual)


async def _step(
    context: SectionContext, trainer: Trainer, engine: TimedEngine, judge: TimedJudge, flow: Any
) -> dict[str, float]:
    """Make one step, and return its figures; times in seconds."""
    judge.intervals.clear()
    began = time.perf_counter()
    drawn: FlowBatch = await flow.next_batch(trainer.version)
    sampled = time.perf_counter()
    log_probs = _log_prob_seconds(context, trainer, drawn)
    synchronize(context.device)
    begun_training = time.perf_counter()
    metrics = trainer.step(drawn.batch)
    synchronize(context.device)
    trained = time.perf_counter()
    await engine.update_weights(trainer.weights(), trainer.version)
    updated = time.perf_counter()
    judging = total_length(judge.intervals)
    hidden = total_length((start, min(end, engine.last_reply)) for start, end in judge.intervals)
    tokens = sum(sample.length for group in drawn.sampled for sample in group.samples)
    # The pass for the log-probs is no part of this step.
    whole = sampled - began + updated - begun_training
    return {
        "step": whole,
        "generation": engine.last_reply - began,
        "judging after it": sampled - engine.last_reply,
        "judging": judging,
        "hidden": hidden / judging if judging else 0.0,
        "log-probs": log_probs,
        "training": trained - begun_training,
        "weight update": updated - trained,
        "tokens": float(tokens),
        "generated per s": tokens / (engine.last_reply - began),
        "trained per s": metrics["tokens"] / (trained - begun_training),
        "tokens per s of the step": tokens / whole,
        "gap": metrics["logprob_gap"],
        "peak, GiB": peak_bytes() / 2**30,
    }


def _log_prob_seconds(context: SectionContext, trainer: Trainer, drawn: FlowBatch) -> float:
    """Return the seconds of one pass over the batch without gradients."""
    groups = [
        PromptReplies(group.prompt_ids, [sample.response_ids for sample in group.samples])
        for group in drawn.sampled
    ]
    tokens = sum(len(ids) for group in groups for ids in group.replies)
    batches = trainer.forward.pack(groups, 16_384)
    return seconds_of(context.device, lambda: trainer.forward.log_probs(batches, tokens))


def total_length(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals; those that end before they start are empty."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > max(start, reached):
            total += end - max(start, reached)
            reached = end
    return total


class TimedEngine:
    """An engine that knows when its last reply ended. See ``Engine`` for its methods."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.last_reply = 0.0

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def version(self) -> int:
        return self._engine.version

    def check(self, request: GenerationRequest) -> None:
        self._engine.check(request)

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        return self._timed(self._engine.generate(request))

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        await self._engine.update_weights(weights, version)

    async def close(self) -> None:
        await self._engine.close()

    async def _timed(self, replies: AsyncIterator[Completion]) -> AsyncIterator[Completion]:
        async for reply in replies:
            self.last_reply = time.perf_counter()
            yield reply


class TimedJudge:
    """A judge of references in place of programs, since a random model writes none. It knows when each was in
    judgement. Every second one has an error at its end, so that rewards differ."""

    def __init__(self, judge: AsyncJudge) -> None:
        self._judge = judge
        self._count = 0
        self.intervals: list[Interval] = []

    @property
    def minimum_tier(self) -> str:
        return self._judge.minimum_tier

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        reference = problem.references[0]
        self._count += 1
        if self._count % 2:
            reference = Program(reference.language, f"{reference.source}\nraise SystemExit(1)\n")
        began = time.perf_counter()
        try:
            return await self._judge.judge(problem, reference, **options)
        finally:
            self.intervals.append((began, time.perf_counter()))
