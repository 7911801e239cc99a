"""Rewards and workflows that users bring."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from whetstone.brought import brought
from whetstone.problem import Problem
from whetstone.verdict import Judgement
from whetstone.workflow.shipped import NAMES

RewardFunction = Callable[[Problem, str, Judgement], float | None]
"""A problem, a reply's text without the given prefix, and the judgement of its program → the reward."""


def reward_function(name: str) -> RewardFunction:
    """The function of that name. Raises ValueError naming what there is."""
    found = brought(name, what="reward", group="whetstone.rewards", shipped=["all", "fraction"])
    if not callable(found):
        raise ValueError(
            f"reward `{name}` cannot be called; it is a function of problem, reply and judgement"
        )
    return cast(RewardFunction, found)


def own_reward(name: str, problem: Problem, reply: str, judgement: Judgement) -> float | None:
    """What the function of that name pays. Raises ValueError when that is not a finite number or None."""
    paid: Any = reward_function(name)(problem, reply, judgement)
    if paid is None:
        return None
    if not isinstance(paid, int | float) or not math.isfinite(paid):
        raise ValueError(f"reward `{name}` pays {paid!r} for a reply to {problem.id}, not a finite number")
    return float(paid)


def own_workflow(kind: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The class of that name, which takes settings, a judge and ``options``. Raises ValueError."""
    found = brought(kind, what="workflow", group="whetstone.workflows", shipped=NAMES)
    if not all(callable(getattr(found, name, None)) for name in ("prompt", "sample")):
        raise ValueError(
            f"workflow `{kind}` has no methods `prompt` and `sample`; see whetstone.workflow.episode.Workflow"
        )
    try:
        inspect.signature(found).bind(None, None, **options)
    except TypeError as error:
        raise ValueError(f"options: {error}; they are keywords of workflow `{kind}`") from None
    return found
