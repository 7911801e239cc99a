"""inspect_ai: a scorer, and a problem set as a dataset. Read in inspect_ai 0.3.285.

A reply without a verdict fails its sample: inspect_ai records an error, not an incorrect answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.data.dataset import open_problems
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.integrations.rewards import shared
from whetstone.integrations.settings import reward_settings


def code_dataset(problems: str, **environment: Any) -> Any:
    """Return a problem set as a ``MemoryDataset``; ``environment``: settings of the section ``environment``.

    ``problems``: a file of problems, or FOLDER:SPLIT of a dataset. The whole problem is in the metadata of a
    sample, and so in the log. Raises UserError for a set that cannot be read, and for wrong settings.
    """
    settings = read_settings(EnvironmentSection, environment, where="the prompts of inspect_ai")
    dataset, model = import_module("inspect_ai.dataset"), import_module("inspect_ai.model")
    roles = {"user": model.ChatMessageUser, "system": model.ChatMessageSystem}
    samples: list[Any] = []
    for problem in open_problems(problems):
        prompt = prompt_of(problem, settings).messages()
        messages = [roles[message["role"]](content=message["content"]) for message in prompt]
        metadata = {"problem": msgspec.json.encode(problem).decode()}
        samples.append(dataset.Sample(input=messages, id=problem.id, metadata=metadata))
    return dataset.MemoryDataset(samples, name=problems)


def whetstone_scorer(**settings: Any) -> Any:
    """Return a scorer of the last reply; ``settings`` are those of ``RewardSettings``.

    It needs samples of ``code_dataset``. The scorer raises NoReward if there is no verdict. Raises UserError
    for wrong settings.
    """
    # Before any reply is sampled, since replies cost money.
    reward_settings(settings)
    scorers = import_module("inspect_ai.scorer")

    async def score(state: Any, target: Any) -> Any:
        rewards = shared(settings)
        problem = (state.metadata or {}).get("problem")
        if problem is None:
            raise UserError("the sample has no problem in its metadata; use a dataset of `code_dataset`")
        scored = await rewards.scored(state.output.completion, problem)
        rewards.number(scored)
        value = scorers.CORRECT if scored.solved else scorers.INCORRECT
        return scorers.Score(value=value, answer=scored.program, explanation=scored.explanation)

    declare = scorers.scorer(metrics=[scorers.accuracy(), scorers.stderr()], name="whetstone_scorer")
    return declare(lambda: score)()
