"""A reward and an environment of one's own. `recipe.yaml` names both, and `test_my_parts.py` tests them."""

import random

from whetstone import Judgement, Problem
from whetstone.environments.prompt_text import reply_prefix
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn


def concise(problem: Problem, reply: str, judgement: Judgement) -> float | None:
    """Return 1 for an accepted program, and up to 0.1 more the shorter the reply is; otherwise 0."""
    if not judgement.accepted:
        return 0.0
    return 1.0 + 0.1 * max(0.0, 1.0 - len(reply) / 100)


class OneLine(SingleTurn):
    """A reply with a second line, or with more than ``most`` characters, has no program."""

    def __init__(self, settings: EnvironmentSection, most: int = 60) -> None:
        super().__init__(settings)
        self._most = most

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """Return the program to judge, or None."""
        line = reply.strip()
        if "\n" in line or len(line) > self._most:
            return None
        return super().program_of(problem, reply)

    def demonstration(self, problem: Problem, rng: random.Random) -> list[tuple[str, str]] | None:
        """Return a reply that a model of random weights imitates first. Two in three are wrong, so that the
        reward has something to correct. A pretrained model needs no demonstrations."""
        programs = problem.wrong if rng.random() < 2 / 3 else problem.references
        source = rng.choice(programs).source
        return [("assistant", source.removeprefix(reply_prefix(problem, self.settings)).strip())]
