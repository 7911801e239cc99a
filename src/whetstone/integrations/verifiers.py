"""verifiers and prime-rl: a reward of a trace, for a task that holds its problem. Read in verifiers 0.4.0.

``examples/verifiers`` has a task set with it, as a package of its own, because task sets are found by package
name. It can be added to an existing task set without code:

    [env.taskset.task.rewards]
    code_reward = {fn = "whetstone.integrations.verifiers:code_reward"}

A reply without a verdict fails its rollout, which is then not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whetstone.core.errors import UserError
from whetstone.integrations.rewards import ScoredReply, shared
from whetstone.integrations.rows import reply_text


async def code_reward(task: Any, trace: Any) -> float:
    """Return the reward of the last reply in ``trace``; ``task.problem`` is the problem as JSON.

    Raises NoReward if there is no verdict, and UserError for a task without a problem.
    """
    problem = getattr(task, "problem", None)
    if problem is None:
        raise UserError("the task has no `problem`; it holds the whole problem as JSON (examples/verifiers)")
    return shared({}).number(await scored(trace, problem))


async def scored(trace: Any, problem: object, settings: Mapping[str, Any] | None = None) -> ScoredReply:
    """Score the last reply in ``trace``; ``settings`` are those of ``RewardSettings``."""
    replies = trace.assistant_messages
    # `trace.last_reply` would strip the indentation, which a continued function body needs.
    # Messages of some versions have no `reasoning_content`.
    names = ("content", "reasoning_content")
    last = {name: getattr(replies[-1], name, None) for name in names} if replies else ""
    return await shared(dict(settings or {})).scored(reply_text(last), problem)
