"""Measure a model by name: load it, join engine, judge and workflow, evaluate, show and save.

The one module of this folder that loads torch; the command line imports it when all else is checked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Literal

import msgspec
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from whetstone.engine.loading import LoadedModel, load_model
from whetstone.engine.memory import keep_freed_memory
from whetstone.engine.torch_engine import TorchEngine
from whetstone.evaluate.benchmarks import Benchmark
from whetstone.evaluate.manifest import build_manifest
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.results import Evaluation
from whetstone.evaluate.run import Progress, evaluate
from whetstone.evaluate.tables import print_evaluation
from whetstone.judge import AsyncJudge
from whetstone.recipe import WorkflowSection
from whetstone.workflow.single_turn import SingleTurn

TierName = Literal["root", "userns", "restricted"]


def measure(
    benchmark: Benchmark,
    plan: Plan,
    workflow: WorkflowSection,
    *,
    model: str,
    revision: str | None = None,
    dtype: str = "bfloat16",
    device: str = "auto",
    threads: int = 0,
    workers: int = 0,
    minimum_tier: TierName = "restricted",
    out: str | None = None,
) -> Evaluation:
    """Evaluate the model, print progress and result, and save to ``out`` if given.

    ``threads`` of torch and ``workers`` of the judge are one per core when 0. Raises UserError for
    a model that cannot be loaded or asked, and SandboxUnavailable below ``minimum_tier``.
    """
    keep_freed_memory()
    torch.set_num_threads(threads or os.cpu_count() or 1)
    console = Console()
    loaded = load_model(model, revision=revision, dtype=dtype, device=device)
    judge = AsyncJudge(workers=workers, minimum_tier=minimum_tier)
    bar = ProgressBar(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(benchmark.name, total=len(benchmark.problems) * plan.n, note="")

        def show(progress: Progress) -> None:
            share = progress.accepted / progress.samples
            bar.update(task, completed=progress.samples, note=f"accepted {share * 100:.1f}%")

        evaluation = asyncio.run(_run(benchmark, plan, workflow, loaded, judge, show))
    manifest = build_manifest(
        benchmark,
        plan,
        workflow,
        model=loaded.source,
        dtype=dtype,
        device=str(loaded.model.device),
        isolation=judge.isolation,
    )
    evaluation = msgspec.structs.replace(evaluation, manifest=manifest)
    if out:
        evaluation.save(out)
    print_evaluation(evaluation, console)
    if out:
        console.print(f"saved: {out}", highlight=False, soft_wrap=True)
    return evaluation


async def _run(
    benchmark: Benchmark,
    plan: Plan,
    settings: WorkflowSection,
    loaded: LoadedModel,
    judge: AsyncJudge,
    show: Callable[[Progress], None],
) -> Evaluation:
    engine = TorchEngine(loaded.model, loaded.tokenizer)
    workflow = SingleTurn(settings, loaded.tokenizer)
    try:
        async with judge:
            return await evaluate(benchmark.problems, engine, judge, workflow, plan, on_progress=show)
    finally:
        await engine.close()
