"""Reward functions of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from whetstone.core.plugins import load_plugin
from whetstone.core.problem import Problem
from whetstone.core.sample import finite_number
from whetstone.core.verdict import Judgement

RewardFunction = Callable[[Problem, str, Judgement], float | None]
"""Takes a problem, the text of a reply without the given prefix, and the judgement of its program. Returns
the reward."""


def reward_function(name: str) -> RewardFunction:
    """Return the reward function with this name. Raises ValueError that lists the known names."""
    function = load_plugin(
        name, kind="reward", entry_point_group="whetstone.rewards", builtin=["all", "fraction"]
    )
    if not callable(function):
        raise ValueError(f"reward `{name}` is not callable; give a function of problem, reply and judgement")
    return cast(RewardFunction, function)


def plugin_reward(name: str, problem: Problem, reply: str, judgement: Judgement) -> float | None:
    """Return the reward that the user's function gives: a finite number, also as a scalar of numpy or a
    tensor, or None.

    Raises ValueError for any other value.
    """
    value: Any = reward_function(name)(problem, reply, judgement)
    if value is None:
        return None
    number = finite_number(value)
    if number is None:
        raise ValueError(f"reward `{name}` gives {value!r} for a reply to {problem.id}, not a finite number")
    return number
