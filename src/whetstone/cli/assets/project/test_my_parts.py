"""The problems, the environment and the reward do what the recipe needs."""

from pathlib import Path

import pytest
import yaml

from whetstone import Problem
from whetstone.data.files import read_problems
from whetstone.integrations.rewards import reward

FOLDER = Path(__file__).parent
RECIPE = yaml.safe_load((FOLDER / "recipe.yaml").read_text(encoding="utf-8"))
PREFIX: str = RECIPE["environment"]["prefix"]
PROBLEMS = list(read_problems(FOLDER / "problems.jsonl"))


def reward_of(reply: str, problem: Problem) -> float | None:
    """Return the reward that a run with the recipe gives."""
    return reward([reply], [problem], environment=RECIPE["environment"])[0]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_right_replies_are_rewarded_and_wrong_ones_are_not(problem: Problem) -> None:
    for program in problem.references:
        assert (reward_of(program.source.removeprefix(PREFIX), problem) or 0) >= 1
    for program in problem.wrong:
        assert reward_of(program.source.removeprefix(PREFIX), problem) == 0


def test_the_shorter_of_two_right_replies_earns_more() -> None:
    short, long = (reward_of(reply, PROBLEMS[0]) for reply in ("sum(xs)", "sum([x for x in xs])"))
    assert short is not None
    assert long is not None
    assert short > long >= 1


@pytest.mark.parametrize("reply", ["sum(xs)\n# and a second line", "sum(xs)" + " + 0" * 20])
def test_a_long_reply_has_no_program(reply: str) -> None:
    assert reward_of(reply, PROBLEMS[0]) == 0
