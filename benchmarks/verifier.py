"""What a verifier's cases find, before and after it was trained: on held-out micro-tasks, by a fixed pool.

    .venv/bin/whetstone train recipes/tiny-verifier.yaml seed=0 out=runs/verifier-0
    .venv/bin/python benchmarks/verifier.py runs/verifier-0 runs/verifier-1 runs/verifier-2

For each of the 80 held-out problems the pool is the task's slip and up to seven expressions of other tasks
of its family, all of which its tests refuse; it is the same for all checkpoints and seeds. The verifier is
shown, by turns, the reference and a program of the pool, and writes eight replies. Counted are its valid
cases, each input once, and the share of the pool that at least one of them rejects. The coder's pass@1 is
printed by ``benchmarks/before_after.py``. The unit of the intervals is the problem; that of all together is
the mean over the runs.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from pathlib import Path

from msgspec.structs import replace

from whetstone.core.intervals import difference_interval
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.core.settings import stream_seed
from whetstone.core.verdict import Verdict
from whetstone.data.micro import MICRO_PREFIX, micro_problems, siblings, split_tasks
from whetstone.engine.loading import load_model
from whetstone.engine.torch_engine import TorchEngine
from whetstone.environments.codegen_verifier import CaseTrials, CodegenVerifier, VerifierOptions, rejects
from whetstone.environments.generated_cases import InvalidCases, as_text, read_cases
from whetstone.environments.replies import EngineReplies
from whetstone.judge import AsyncJudge
from whetstone.run.recipe import load_recipe, partner_recipe

REPLIES, POOL = 8, 8


async def pools(judge: AsyncJudge) -> dict[str, list[Program]]:
    """Wrong programs for each held-out problem, by its id."""
    found: dict[str, list[Program]] = {}
    for task, problem in zip(split_tasks("heldout"), micro_problems("heldout"), strict=True):
        rivals = sorted({each.expression for each in siblings(task.family)} - {task.expression, task.slip})
        rivals = [task.slip, *random.Random(task.statement).sample(rivals, len(rivals))]
        programs = [Program("python", f"{MICRO_PREFIX}{rival}\n") for rival in rivals[: 2 * POOL]]
        judged = await asyncio.gather(*(judge.judge(problem, program) for program in programs))
        wrong = [p for p, j in zip(programs, judged, strict=True) if j.verdict is Verdict.WRONG_ANSWER]
        found[problem.id] = wrong[:POOL]
    return found


async def measured(
    run: Path, step: int, judge: AsyncJudge, pool: dict[str, list[Program]]
) -> dict[str, tuple[float, int, int]]:
    """For each problem: the share of its pool that is refused, distinct valid cases, valid replies."""
    recipe = load_recipe(run / "recipe.yaml")
    sampling = partner_recipe(recipe).sampling
    options = VerifierOptions.model_validate(recipe.environment.options)
    environment, trials = CodegenVerifier(recipe.environment, options), CaseTrials(judge)
    loaded = load_model(str(run / "verifier" / "checkpoints" / f"step-{step}"), dtype="float32")
    engine = TorchEngine(loaded.model, loaded.tokenizer)
    replies = EngineReplies(engine, loaded.tokenizer, sampling, max_prompt_tokens=1024)

    async def one(problem: Problem) -> tuple[float, int, int]:
        wrong, cases, valid = pool[problem.id], dict[str, CallCase](), 0
        for index in range(REPLIES):
            shown = wrong[index // 2 % len(wrong)] if index % 2 else problem.references[0]
            prompt = environment.verifier_prompt(problem, shown.source)
            seed = stream_seed("benchmark", problem.id, index)
            async for reply in replies.draw(problem, prompt, n=1, seed=seed)[1]:
                try:
                    tests = read_cases(
                        prompt.prefix + reply.text, problem, count=options.cases, most_bytes=options.max_bytes
                    )
                except InvalidCases:
                    continue
                if (await trials.try_cases(problem, tests, None, None)).valid:
                    valid += 1
                    assert isinstance(tests, CallTests)
                    cases |= {key: case for (key, _), case in zip(as_text(tests), tests.cases, strict=True)}
        if not cases:
            return 0.0, 0, valid
        generated = replace(problem, tests=CallTests(list(cases.values()), "f"))
        found = await asyncio.gather(*(judge.judge(generated, program) for program in wrong))
        return sum(rejects(each, None) for each in found) / len(wrong), len(cases), valid

    problems = micro_problems("heldout")
    results = await asyncio.gather(*(one(problem) for problem in problems))
    await engine.close()
    return {problem.id: result for problem, result in zip(problems, results, strict=True)}


def row(name: str, before: list[float], after: list[float], scale: float = 1.0) -> str:
    """Means before and after, and the interval of the paired rise."""
    rises = [(b - a) / scale for a, b in zip(before, after, strict=True)]
    low, high = (scale * bound for bound in difference_interval(rises))
    a, b = statistics.fmean(before), statistics.fmean(after)
    return f"{name}: {a:.3f} -> {b:.3f}, rise {b - a:+.3f} [{low:+.3f}, {high:+.3f}]"


async def main() -> None:
    """Print a row for each run and measure, and for all together."""
    measures = [
        ("wrong programs refused", 1.0),
        ("distinct valid cases", REPLIES),
        ("valid replies", REPLIES),
    ]
    columns: list[tuple[list[list[float]], list[list[float]]]] = [([], []) for _ in measures]
    async with AsyncJudge(1) as judge:
        pool = await pools(judge)
        for run in map(Path, sys.argv[1:]):
            steps = [0, load_recipe(run / "recipe.yaml").trainer.steps]
            found = [await measured(run, step, judge, pool) for step in steps]
            for number, (name, scale) in enumerate(measures):
                before, after = ([float(result[number]) for result in each.values()] for each in found)
                columns[number][0].append(before)
                columns[number][1].append(after)
                print(f"{run.name:16} {row(name, before, after, scale)}", flush=True)
    for (name, scale), (before, after) in zip(measures, columns, strict=True):
        start, end = (
            [statistics.fmean(values) for values in zip(*side, strict=True)] for side in (before, after)
        )
        print(f"{'all together':16} {row(name, start, end, scale)}")


if __name__ == "__main__":
    asyncio.run(main())
