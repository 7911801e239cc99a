"""OpenEnv: a problem set as an environment server. Read in openenv-core 0.3.0.

    app = code_app("problems.jsonl")          # uvicorn module:app

An episode is one problem. ``reset`` returns the prompt, and ``step`` takes the reply and returns its reward.
A reply without a verdict makes the step fail: OpenEnv's clients raise an error, and no reward is reported.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from uuid import uuid4

from pydantic import create_model

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems
from whetstone.environments.prompt_text import prompt_of
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.settings import reward_settings


def code_app(problems: str, *, sessions: int = 64, idle_s: float = 3600.0, **settings: Any) -> Any:
    """Return the server of a problem set as an ASGI application, for at most ``sessions`` clients at once.

    A client that sends nothing for ``idle_s`` seconds loses its session; otherwise silent clients would keep
    others out for ever.

    ``problems``: a file of problems, or FOLDER:SPLIT of a dataset. ``settings``: those of ``RewardSettings``.
    All sessions share one judge. Raises UserError for a set that cannot be read.
    """
    tasks, rewards = list(open_problems(problems)), Rewards(reward_settings(settings))
    if not tasks:
        raise UserError(f"{problems} has no problems")
    server, types = import_module("openenv.core.env_server.http_server"), _types()
    base: Any = import_module("openenv.core.env_server.interfaces").Environment
    environment: Any = type("CodeEnvironment", (_Episodes, base), {})
    return server.create_app(
        lambda: environment(tasks, rewards, types),
        types["action"],
        types["observation"],
        env_name="whetstone",
        concurrency_config=types["concurrency"](max_concurrent_envs=sessions, session_timeout=idle_s),
    )


def _types() -> dict[str, Any]:
    """Return the messages: ``CodeAction`` has the reply, ``CodeObservation`` a prompt or a verdict."""
    base: Any = import_module("openenv.core.env_server.types")
    observation: dict[str, Any] = {
        "problem_id": (str, ""),
        "messages": (list[dict[str, str]], []),
        "verdict": (str, ""),
        "explanation": (str, ""),
    }
    return {
        "action": create_model("CodeAction", __base__=base.Action, reply=(str, ...)),
        "observation": create_model("CodeObservation", __base__=base.Observation, **observation),
        "state": base.State,
        "concurrency": base.ConcurrencyConfig,
    }


class _Episodes:
    """One session: an episode for each call of ``reset``. OpenEnv's ``Environment`` is its second base."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: Sequence[Problem], rewards: Rewards, types: dict[str, Any]) -> None:
        super().__init__()
        self._tasks, self._rewards, self._types = tasks, rewards, types
        self._random = random.Random()
        self._task: Problem | None = None
        self._state = types["state"](episode_id=None, step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, problem_id: str | None = None
    ) -> Any:
        """Begin an episode with ``problem_id``, or with a problem drawn with ``seed``."""
        if seed is not None:
            self._random = random.Random(seed)
        self._task = self._named(problem_id) if problem_id else self._random.choice(self._tasks)
        self._state = self._types["state"](episode_id=episode_id or str(uuid4()), step_count=0)
        prompt = prompt_of(self._task, self._rewards.settings.environment)
        return self._types["observation"](problem_id=self._task.id, messages=prompt.messages())

    async def step_async(self, action: Any, timeout_s: float | None = None) -> Any:
        """End the episode with the reward of the reply. Raises NoReward if there is no verdict."""
        if self._task is None or self._state.step_count:
            raise UserError("call reset before step: an episode is one reply")
        self._state.step_count = 1
        told = await self._rewards.told(action.reply, self._task)
        return self._types["observation"](problem_id=self._task.id, done=True, **told)

    def step(self, action: Any, timeout_s: float | None = None) -> Any:
        """See step_async."""
        return asyncio.run(self.step_async(action, timeout_s))

    @property
    def state(self) -> Any:
        """The id of the episode and the number of its steps."""
        return self._state

    def _named(self, problem_id: str) -> Problem:
        found = next((task for task in self._tasks if task.id == problem_id), None)
        if found is None:
            raise UserError(f"the set has no problem {problem_id!r}")
        return found
