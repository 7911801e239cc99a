"""Settings of the reward adapters, with the keys of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from whetstone.core.settings import Section, read_settings
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge.settings import JudgeSection


class RewardSettings(Section):
    """How an adapter reads and judges a reply: sections of a recipe, and settings that only an adapter needs.

    environment: how the program of a reply is extracted and rewarded. The prompt fields are not used, because
        the other trainer builds the prompt (except ``prefix``, if the reply starts with one).
    judge: as in a recipe. ``workers`` 0 divides the cores of this machine between the ranks on it (torchrun's
        LOCAL_WORLD_SIZE). ``max_cases`` always selects the same cases of a problem.
    thinking_opened: the chat template ends the prompt with <think>, so the reply only contains the end of the
        thinking.
    no_reward: the reward if there is no verdict, for trainers that do not support a missing reward; without
        it they stop.
    """

    environment: EnvironmentSection = EnvironmentSection()
    judge: JudgeSection = JudgeSection()
    thinking_opened: bool = False
    no_reward: float | None = None


def reward_settings(options: Mapping[str, Any]) -> RewardSettings:
    """Return settings from keyword arguments, or from a section of another trainer's configuration.

    Raises UserError that names every wrong key.
    """
    return read_settings(RewardSettings, plain(options), where="whetstone's reward")


def plain(value: Any) -> Any:
    """Return ``value`` with mappings as dicts and sequences as lists, since OmegaConf has its own classes for
    both."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return value
