"""Seconds per GRPO step: Whetstone's trainer and TRL's ``GRPOTrainer``, side by side in one run.

    .venv/bin/python benchmarks/trl_step.py --trl-python /path/to/trl-venv/bin/python \\
        --model models/SmolLM2-135M-Instruct --rounds 3 --steps 5

Both get the same model, prompts, group size, reply length (exactly ``--tokens``, so that neither
gains by stopping early), bf16 compute over fp32 master weights, one AdamW update per step, threads,
and the same judge for the reward. ``trl-bf16`` is TRL with bf16 parameters and no master weights: less
precise, shown because it is TRL's faster setting. The parties take turns, each in a fresh process;
the first step of every process is left out.

All parties keep freed memory in the process: ours by itself, and every one by glibc's environment.

TRL's environment needs: torch, trl, and whetstone-rl's base install (for the judge).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What `keep_freed_memory` sets in our process, as the environment variables that glibc reads (mallopt(3)).
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}
QUESTION = "{statement}\n\nReply with the code only, in one Python code block."
PARTIES = ("whetstone", "trl", "trl-bf16")


def problems(count: int) -> list[Any]:
    """The first ``count`` shipped training tasks that call a function."""
    from whetstone.core.problem import CallTests
    from whetstone.data.dataset import load_problems

    return [p for p in load_problems("builtin:train") if isinstance(p.tests, CallTests)][:count]


def question(problem: Any) -> str:
    """The user's text, the same for both parties."""
    return QUESTION.format(statement=problem.statement)


def run_whetstone(args: argparse.Namespace) -> list[float]:
    """Time steps of the synchronous loop: generate, judge, learn, hand over the weights."""
    import asyncio

    import torch

    from whetstone.engine.loading import load_model
    from whetstone.engine.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(args.threads)
    policy = load_model(args.model, dtype="bfloat16")
    served = load_model(args.model, dtype="bfloat16")
    served.model.generation_config.eos_token_id = None  # every reply has its full length
    served.tokenizer.eos_token = None
    return asyncio.run(_whetstone_steps(args, policy, served))


async def _whetstone_steps(args: argparse.Namespace, policy: Any, served: Any) -> list[float]:
    from whetstone.algorithm.named import algorithm_named
    from whetstone.engine.torch_engine import TorchEngine
    from whetstone.judge import AsyncJudge
    from whetstone.trainer.settings import TrainerSection
    from whetstone.trainer.trainer import Trainer

    spec = algorithm_named("dapo", {"drop_zero_variance": False, "refill_rounds": 0, "overlong_buffer": 0})
    settings = TrainerSection(
        prompts_per_step=args.prompts, samples_per_prompt=args.group, lr=1e-6, micro_batch_tokens=4096
    )
    engine = TorchEngine(served.model, served.tokenizer)
    trainer = Trainer(policy.model, spec, settings, temperature=1.0, max_tokens=args.tokens)
    seconds: list[float] = []
    async with AsyncJudge(args.threads, stop_at_first_failure=True) as judge:
        flow = sampling_flow(
            engine,
            policy.tokenizer,
            judge,
            spec,
            tasks=problems(args.prompts),
            environment={"prompt": QUESTION},
            sampling={"max_tokens": args.tokens},
            prompts=args.prompts,
            group=args.group,
        )
        for _ in range(args.steps + 1):
            start = time.perf_counter()
            drawn = await flow.next_batch(trainer.version)
            trainer.step(drawn.batch)
            await engine.update_weights(trainer.weights(), trainer.version)
            seconds.append(time.perf_counter() - start)
            assert all(len(s.response_ids) == args.tokens for g in drawn.sampled for s in g.samples)
    await engine.close()
    return seconds


def sampling_flow(
    engine: Any,
    tokenizer: Any,
    judge: Any,
    spec: Any,
    *,
    tasks: list[Any],
    environment: dict[str, Any],
    sampling: dict[str, Any],
    prompts: int,
    group: int,
) -> Any:
    """The flow of synchronous steps over ``tasks``; settings as in a recipe."""
    from whetstone.core.settings import Sampling
    from whetstone.environments.episode import POLICY
    from whetstone.environments.replies import EngineReplies
    from whetstone.environments.settings import EnvironmentSection
    from whetstone.environments.single_turn import SingleTurn
    from whetstone.rollout.local_flow import LocalFlow
    from whetstone.rollout.sampling import GroupSampler
    from whetstone.rollout.source import PromptSource

    asked = EnvironmentSection.model_validate(environment)
    limit = asked.max_prompt_tokens
    params = Sampling.model_validate(sampling)
    replies = {POLICY: EngineReplies(engine, tokenizer, params, max_prompt_tokens=limit)}
    sample = GroupSampler(SingleTurn(asked), judge, replies, group, 0, None)
    source = PromptSource(tasks, seed=0)
    return LocalFlow(source, sample, replies[POLICY], spec, prompts_per_step=prompts)


def run_trl(args: argparse.Namespace) -> list[float]:
    """Time GRPOTrainer's steps by a callback around each."""
    import torch
    from datasets import Dataset
    from trl import GRPOTrainer

    from whetstone.judge import Judge

    torch.set_num_threads(args.threads)
    tasks = problems(args.prompts)
    rows = [{"prompt": [{"role": "user", "content": question(p)}], "problem_id": p.id} for p in tasks]
    clock = _trl_clock()
    with Judge(args.threads, stop_at_first_failure=True) as judge:
        trainer = GRPOTrainer(
            model=args.model,
            reward_funcs=_trl_reward(tasks, judge),
            args=_trl_config(args),
            train_dataset=Dataset.from_list(rows),
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def _trl_reward(tasks: list[Any], judge: Any) -> Any:
    """The same judge, as TRL asks for rewards."""
    from whetstone.core.problem import Program
    from whetstone.judge.extract import extract_program

    by_id = {p.id: p for p in tasks}

    def reward(completions: list[Any], problem_id: list[str], **_: Any) -> list[float]:
        texts = [c[0]["content"] for c in completions]
        pairs = [
            (by_id[i], Program("python", extract_program(t, "last_fence") or ""))
            for i, t in zip(problem_id, texts, strict=True)
        ]
        return [float(j.accepted) for j in judge.judge_many(pairs)]

    return reward


def _trl_clock() -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Wall time from the beginning of each step to its end."""

        def __init__(self) -> None:
            self.seconds: list[float] = []
            self._start = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._start = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(time.perf_counter() - self._start)

    return Clock()


def _trl_config(args: argparse.Namespace) -> Any:
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=args.scratch,
        use_cpu=True,
        bf16=True,
        loss_type="dapo",
        beta=0.0,
        learning_rate=1e-6,
        num_generations=args.group,
        max_completion_length=args.tokens,
        temperature=1.0,
        per_device_train_batch_size=args.prompts * args.group // 2,
        gradient_accumulation_steps=2,
        max_steps=args.steps + 1,
        generation_kwargs={"min_new_tokens": args.tokens},
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1000,
        model_init_kwargs={"dtype": "bfloat16" if args.party == "trl-bf16" else "float32"},
    )


def versions(python: str) -> str:
    """What an environment runs with."""
    code = (
        "import torch, transformers, importlib.metadata as m, importlib.util as u;"
        "print('torch', torch.__version__, 'transformers', transformers.__version__,"
        " *(['trl', m.version('trl')] if u.find_spec('trl') else []))"
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def compare(args: argparse.Namespace) -> None:
    """Let the parties take turns and print their medians and ratios."""
    seconds: dict[str, list[float]] = {party: [] for party in PARTIES}
    for turn in range(args.rounds):
        for party in PARTIES:
            measured = _measured(args, party)
            seconds[party] += measured
            print(f"round {turn + 1} {party:10} " + " ".join(f"{s:6.2f}" for s in measured), flush=True)
    print(
        f"\n{platform.machine()}, {args.threads} threads; {args.prompts} prompts x {args.group} replies"
        f" x {args.tokens} tokens; {versions(sys.executable)} | {versions(args.trl_python)}"
    )
    ours = statistics.median(seconds["whetstone"])
    for party in PARTIES:
        middle = statistics.median(seconds[party])
        print(
            f"{party:10} median {middle:6.2f} s  min {min(seconds[party]):6.2f}"
            f"  max {max(seconds[party]):6.2f}  whetstone/this {ours / middle:.2f}"
        )


def _measured(args: argparse.Namespace, party: str) -> list[float]:
    """Seconds of the steps of a party, in a process of its own, without the first."""
    command = [sys.executable if party == "whetstone" else args.trl_python, __file__, "--party", party]
    for name in ("model", "steps", "prompts", "group", "tokens", "threads", "scratch"):
        command += [f"--{name}", str(getattr(args, name))]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(args.threads),
        **ALLOCATOR,
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{party} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])[1:]


def main() -> None:
    """Either the comparison, or one party of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trl-python", default="", help="the Python of an environment with TRL")
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", default="runs/trl-scratch")
    parser.add_argument("--party", choices=PARTIES, default=None)
    args = parser.parse_args()
    if args.party is None:
        compare(args)
    else:
        seconds = run_whetstone(args) if args.party == "whetstone" else run_trl(args)
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
