"""RL in one file: sample programs, judge them, reward them, train, and serve the new weights.

    python examples/minimal_rl.py models/SmolLM2-135M-Instruct --steps 5

This is what ``whetstone train`` does in one process, without recipes, files, resume, evaluation and display.
A step has six parts, and each is one call: draw problems, sample replies, judge programs, form groups, train,
update the engine's weights.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence

from whetstone import AsyncJudge, Problem, Program, Verdict
from whetstone.algorithm.named import algorithm_named
from whetstone.core.sample import Batch, Group, Sample
from whetstone.core.settings import Sampling
from whetstone.data.dataset import load_problems
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.loading import load_model
from whetstone.engine.torch_engine import TorchEngine
from whetstone.environments.prompt import Tokenizer, encode_prompt
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import program_of
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

PROBLEMS_PER_STEP = 4
REPLIES_PER_PROBLEM = 8
SAMPLING = Sampling(temperature=0.8, max_tokens=48, stop=("```",))
ENVIRONMENT = EnvironmentSection(
    chat=True,
    prompt="{statement}\n\n{instruction}",
    prefix="```python\n{starter}",  # the reply continues a code block
    extraction="last_fence",
)


async def sample(engine: TorchEngine, prompt_ids: list[int], seed: int) -> list[Completion]:
    """REPLIES_PER_PROBLEM replies to one prompt, in the order in which they end."""
    request = GenerationRequest(prompt_ids, SAMPLING, n=REPLIES_PER_PROBLEM, seed=seed)
    return [completion async for completion in engine.generate(request)]


def environment_of(tokenizer: Tokenizer) -> EnvironmentSection:
    """ENVIRONMENT, with plain text for a model without a chat template, such as a base model."""
    return ENVIRONMENT.model_copy(update={"chat": bool(tokenizer.chat_template)})


async def judged(judge: AsyncJudge, problem: Problem, completion: Completion, text: str) -> Sample:
    """A reply with its reward: 1 if its program passes every test, 0 if not, None if it has no verdict."""
    source = program_of(problem, ENVIRONMENT, text) or ""
    judgement = await judge.judge(problem, Program(problem.language, source))
    # A failure of the judge is no verdict. The loss leaves such a sample out.
    failed = judgement.verdict is Verdict.JUDGE_ERROR
    return Sample(
        response_ids=completion.token_ids,
        logprobs=completion.logprobs,
        versions=completion.versions,
        finish_reason=completion.finish_reason,
        text=text,
        program=source,
        judgement=judgement,
        reward=None if failed else float(judgement.accepted),
    )


async def group_of(
    engine: TorchEngine, judge: AsyncJudge, tokenizer: Tokenizer, problem: Problem, seed: int
) -> Group:
    """All samples of one problem. They share a baseline."""
    prompt_ids = encode_prompt(prompt_of(problem, environment_of(tokenizer)), tokenizer)
    completions = await sample(engine, prompt_ids, seed)
    texts = [tokenizer.decode(each.token_ids, skip_special_tokens=True) for each in completions]
    pairs = zip(completions, texts, strict=True)
    samples = await asyncio.gather(*(judged(judge, problem, each, text) for each, text in pairs))
    return Group(problem.id, prompt_ids, list(samples))


def informative(groups: Sequence[Group]) -> list[Group]:
    """Groups whose rewards differ. Without a difference every advantage is zero."""
    return [group for group in groups if len(set(group.rewards())) > 1]


async def train(model_path: str, steps: int, seed: int = 0) -> list[float]:
    """Train for some steps; returns the mean reward of each."""
    problems = load_problems("builtin:train")
    loaded = load_model(model_path)
    trainer = Trainer(
        loaded.model,
        algorithm_named("dapo", {"overlong_buffer": 0}),
        TrainerSection(lr=5.0e-5, micro_batch_tokens=768),
        temperature=SAMPLING.temperature,
        max_tokens=SAMPLING.max_tokens,
    )
    # The engine has a copy of the weights: the trainer changes its own while replies may be in flight.
    engine = TorchEngine(trainer.plain_copy(), loaded.tokenizer, cache_mb=512)
    rng, history = random.Random(seed), list[float]()
    async with AsyncJudge(workers=2) as judge:
        for step in range(1, steps + 1):
            drawn = rng.sample(problems, PROBLEMS_PER_STEP)
            groups = await asyncio.gather(
                *(group_of(engine, judge, loaded.tokenizer, each, seed=step) for each in drawn)
            )
            metrics = trainer.step(Batch(informative(groups)))
            await engine.update_weights(trainer.weights(), trainer.version)
            rewards = [reward for group in groups for reward in group.rewards()]
            history.append(sum(rewards) / max(len(rewards), 1))
            print(f"step {step}: reward {history[-1]:.3f}, grad norm {metrics.get('grad_norm', 0):.2f}")
    await engine.close()
    return history


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="RL on the problems that ship with Whetstone.")
    parser.add_argument("model", help="a folder, a GGUF file or a hub id")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    asyncio.run(train(args.model, args.steps, args.seed))


if __name__ == "__main__":
    main()
