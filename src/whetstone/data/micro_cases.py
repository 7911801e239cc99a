"""Test cases for micro-tasks, as a verifier writes them: what a model from scratch is warmed up on."""

from __future__ import annotations

import json
import random
from functools import lru_cache

from whetstone.data.micro import MICRO_PREFIX, MicroTask, siblings, split_tasks
from whetstone.syntax import parsing

MICRO_VERIFIER_PROMPT = "# {statement}\n{program}\n"
"""What the verifier of a recipe for these tasks has to be asked."""

MICRO_VERIFIER_PREFIX = '{"inputs": [[['
"""What its reply starts with (given, not sampled): it goes on with the list and what the task makes of it."""

_POOL = 400


def micro_case_examples(count: int, seed: int, wrong_share: float) -> list[tuple[str, str]]:
    """``count`` pairs (prompt with prefix, reply) over the train split: a program, and one case for its task.

    Half of the programs are right, the others are near misses. A case's output is that of a near miss, where
    it differs, with probability ``wrong_share``. Inputs have up to three numbers.
    """
    rng = random.Random(f"micro-cases-{seed}")
    pool = _inputs(seed)
    tasks = split_tasks("train")
    examples: list[tuple[str, str]] = []
    while len(examples) < count:
        for task in rng.sample(tasks, min(len(tasks), count - len(examples))):
            program = task.expression if rng.random() < 0.5 else near_miss(task, rng)
            place = rng.randrange(len(pool))
            told = near_miss(task, rng) if rng.random() < wrong_share else task.expression
            program_text = MICRO_PREFIX + program
            prompt = MICRO_VERIFIER_PROMPT.format(statement=task.statement, program=program_text)
            reply = _reply(pool[place], _outcomes(told, seed)[place])
            examples.append((prompt + MICRO_VERIFIER_PREFIX, reply))
    return examples


def near_miss(task: MicroTask, rng: random.Random) -> str:
    """The slip of a task, or the expression of another one of its family."""
    return rng.choice([task.slip, *(each.expression for each in siblings(task.family) if each is not task)])


def _reply(given: list[int], outcome: object) -> str:
    return f'{json.dumps(given)[1:]}]], "outputs": [{json.dumps(outcome)}]}}'


@lru_cache(maxsize=2)
def _inputs(seed: int) -> list[list[int]]:
    rng = random.Random(f"micro-case-inputs-{seed}")
    return [[rng.randint(-4, 12) for _ in range(rng.randint(0, 3))] for _ in range(_POOL)]


@lru_cache(maxsize=4096)
def _outcomes(expression: str, seed: int) -> list[object]:
    """What one of our own expressions makes of every input."""
    with parsing():
        code = compile(expression, "<micro-task>", "eval")
    return [eval(code, {"xs": list(xs)}) for xs in _inputs(seed)]
