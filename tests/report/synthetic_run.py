"""A run's folder with plausible contents, written through the real writers."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.evaluate.passk import mean_with_interval
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import Evaluation, ProblemResult, Shares
from whetstone.report.batch import batch_metrics
from whetstone.report.metrics import MetricsWriter
from whetstone.report.rollouts import RolloutWriter, rollouts_from

RECIPE = """\
name: {name}
seed: 3
model: {{path: models/SmolLM2-135M-Instruct}}
data: {{train: builtin:train, heldout: builtin:heldout}}
algorithm: {{preset: dapo}}
trainer: {{steps: {steps}, prompts_per_step: 4, samples_per_prompt: 4, lr: 2.0e-5}}
"""
FAILURES = [
    Verdict.WRONG_ANSWER,
    Verdict.RUNTIME_ERROR,
    Verdict.COMPILE_ERROR,
    Verdict.TIME_LIMIT,
    Verdict.NO_CODE,
]


def write_run(folder: Path, steps: int = 6, *, name: str = "demo", reply: str | None = None) -> Path:
    """Write a run of ``steps`` steps that gets better; ``reply`` replaces every reply's text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE.format(name=repr(name), steps=steps), encoding="utf-8")
    rng = random.Random(0)
    rollouts = RolloutWriter(folder)
    with MetricsWriter(folder / "metrics.jsonl") as metrics:
        metrics.write(_evaluation(0, 0.31))
        for step in range(1, steps + 1):
            skill = 0.3 + 0.5 * step / steps
            groups = [_group(rng, step, number, skill, reply) for number in range(4)]
            rollouts.write(step, rollouts_from(step, groups, lambda ids: f"Write f, please. Prompt {ids}"))
            learned = {
                "loss": 0.02 * math.sin(step),
                "entropy": 0.9 - 0.4 * step / steps,
                "grad_norm": 0.8 + rng.random() / 3,
                "kl": 0.001 * step,
                "logprob_gap": 0.004 + rng.random() / 1000,
                "outside": 0.02,
                "lr": 2e-5,
            }
            clock = {"generate": 6 + rng.random(), "train": 4.0, "sync": 0.3, "step": 11.0, "judge": 0.8}
            metrics.write(
                {
                    "step": step,
                    "kind": "train",
                    "time": clock
                    | {
                        "tokens_per_s": 400 + rng.random() * 30,
                        "train_tokens_per_s": 900.0,
                        "peak_bytes": 2e9,
                    },
                }
                | batch_metrics(groups, Batch(groups))
                | {f"loss/{key}": value for key, value in learned.items()}
            )
            if step % max(1, steps // 4) == 0:
                metrics.write(_evaluation(step, skill))
    return folder


def write_results(run: Path, step: int, right: list[int], **plan: Any) -> None:
    """Write the evaluation of a step: the number of right replies, of four, to each problem."""
    problems = [ProblemResult(f"p{i}", 4, correct) for i, correct in enumerate(right)]
    passed = {1: mean_with_interval([correct / 4 for correct in right])}
    shares = Shares(4 * len(right), {}, 0, 0, 0, 0, 10)
    evaluation = Evaluation(SamplingPlan(n=4, **plan), problems, passed, shares, tables={})
    evaluation.save(run / "evaluations" / f"step-{step}-heldout")


def _evaluation(step: int, skill: float) -> dict[str, object]:
    record: dict[str, object] = {"step": step, "kind": "eval", "time": {"eval": 30.0}}
    for name, shift in (("heldout", -0.04), ("train", 0.03)):
        for k, gain in ((1, 0.0), (8, 0.15)):
            value = min(1.0, skill + shift + gain)
            record[f"eval/{name}/pass@{k}"] = value
            record[f"eval/{name}/pass@{k}_low"] = max(0.0, value - 0.06)
            record[f"eval/{name}/pass@{k}_high"] = min(1.0, value + 0.06)
    return record


def _group(rng: random.Random, step: int, number: int, skill: float, reply: str | None) -> Group:
    samples: list[Sample] = []
    for _ in range(4):
        verdict = Verdict.ACCEPTED if rng.random() < skill else rng.choice(FAILURES)
        length = rng.randint(20, 90)
        samples.append(
            Sample(
                response_ids=list(range(length)),
                logprobs=[-0.5] * length,
                versions=[step - 1] * length,
                finish_reason="length" if length > 84 else "stop",
                text=reply or f"```python\ndef f(xs):\n    return sum(xs) + {number}\n```",
                program=None
                if verdict is Verdict.NO_CODE
                else reply or f"def f(xs):\n    return sum(xs) + {number}",
                judgement=_judgement(verdict),
                reward=float(verdict is Verdict.ACCEPTED),
                accepted=verdict is Verdict.ACCEPTED,
            )
        )
    source = "<taco>" if number % 2 else "apps"
    return Group(f"whetstone/lists/task_{number}", [step, number], samples, {"source": source})


def _judgement(verdict: Verdict) -> Judgement:
    if verdict is Verdict.NO_CODE:
        return Judgement(verdict, [], 0.0, "root", reason="the reply holds no program")
    good = CaseJudgement(Verdict.ACCEPTED, 0.004, 0.006, 9_000_000)
    if verdict is Verdict.ACCEPTED:
        return Judgement(verdict, [good] * 3, 1.0, "root")
    bad = CaseJudgement(verdict, 0.003, 0.005, 9_000_000, "got 7, expected 6")
    return Judgement(verdict, [good, bad], 1 / 3, "root")
