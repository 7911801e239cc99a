"""Arithmetic with whole numbers: an environment whose reward needs no unit tests.

    python -m arithmetic sets/arithmetic

writes training and held-out problems, such as ``37 * 48 + 12``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.problem import NoTests, Problem
from whetstone.data.files import write_problems
from whetstone.environments.conversation import Reply
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection

TRAIN, HELDOUT = 10_000, 200


class Arithmetic(Environment):
    """One reply. Its reward is 1 if its last line is the answer of the problem, and 0 otherwise."""

    def __init__(self, settings: EnvironmentSection) -> None:
        self._settings = settings

    def prompt(self, problem: Problem) -> Prompt | None:
        """See Environment."""
        return prompt_of(problem, self._settings)

    def check(self, problem: Problem) -> None:
        """See Environment."""
        answer_of(problem)

    def demonstration(self, problem: Problem, rng: random.Random) -> list[tuple[str, str]] | None:
        """See Environment."""
        return [("assistant", answer_of(problem))]

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        conversation = await episode.begin()
        accepted = is_right(problem, conversation.reply)
        sample = conversation.sample(reward=reward_of(accepted), accepted=accepted)
        return Rollout({self.models[0]: [sample]})


def answer_of(problem: Problem) -> str:
    """Return the answer of a problem as digits. Raises UserError if it has none."""
    answer = problem.meta.get("answer")
    if not (isinstance(answer, str) and answer.isascii() and answer.isdigit()):
        raise UserError(
            f"problem {problem.id!r}: `meta.answer` is {answer!r}, not a text of digits; "
            "`python -m arithmetic OUT` writes such problems"
        )
    return answer


def is_right(problem: Problem, reply: Reply) -> bool | None:
    """Return whether the last line of a reply is exactly the answer; None for a reply that failed.

    A reply has one last line, so it makes one guess: a list of numbers earns nothing. A reply that was cut at
    its token limit is wrong, because it could end anywhere.
    """
    if reply.finish_reason == "failed":
        return None
    last_line = reply.text.rstrip().rpartition("\n")[2]
    return reply.finish_reason == "stop" and last_line == answer_of(problem)


def reward_of(accepted: bool | None) -> float | None:
    """Return 1 or 0; None without a result."""
    return None if accepted is None else float(accepted)


def problem_sets(seed: int = 0) -> dict[str, list[Problem]]:
    """Return the training and the held-out problems. No two have the same expression, nor the same factors
    in another order with the same summand."""
    factors = [(a, b) for a in range(10, 100) for b in range(a, 100)]
    summands = range(10, 100)
    drawn = random.Random(seed).sample(range(len(factors) * len(summands)), TRAIN + HELDOUT)
    parts = [(*factors[number // len(summands)], summands[number % len(summands)]) for number in drawn]
    return {
        "train": list(_problems(parts[HELDOUT:], "train")),
        "heldout": list(_problems(parts[:HELDOUT], "heldout")),
    }


def _problems(parts: list[tuple[int, int, int]], split: str) -> Iterator[Problem]:
    for a, b, c in parts:
        yield Problem(
            id=f"arithmetic/{a}x{b}+{c}",
            statement=f"{a} * {b} + {c}",
            tests=NoTests(),
            source=f"arithmetic:{split}",
            meta={"answer": str(a * b + c)},
        )


def main() -> None:
    """Write ``train.jsonl`` and ``heldout.jsonl`` to the folder that the command names."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m arithmetic OUT")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, problems in problem_sets().items():
        path = folder / f"{name}.jsonl"
        print(f"{path}: {write_problems(path, problems)} problems")


if __name__ == "__main__":
    main()
