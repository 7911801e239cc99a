"""TRL: a reward function for GRPOTrainer and RLOOTrainer. Read in TRL 1.16.0.

Rows are those of ``whetstone data convert --export-format trl``: TRL passes the column ``problem`` to the
function. A reward of None removes a reply from its group's mean and from the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whetstone.core.errors import UserError
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.rows import reply_text
from whetstone.integrations.settings import reward_settings


class CodeReward:
    """``GRPOTrainer(reward_funcs=CodeReward(), …)``; keyword arguments are those of ``RewardSettings``.

    Each process of a run has its own judge, with its share of the cores.
    """

    def __init__(self, **settings: Any) -> None:
        self.rewards = Rewards(reward_settings(settings))

    def __call__(
        self,
        completions: Sequence[str | Sequence[Mapping[str, Any]]],
        problem: Sequence[object] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of completions, in order."""
        if problem is None:
            raise UserError(
                "the rows have no column `problem`; `whetstone data convert SET OUT --export-format trl` "
                "writes it"
            )
        scored = self.rewards.score([reply_text(completion) for completion in completions], problem)
        if log_metric is not None and scored:
            log_metric("code_reward/accepted", sum(s.solved for s in scored) / len(scored))
            log_metric("code_reward/no_reward", sum(s.reward is None for s in scored) / len(scored))
        return [s.reward for s in scored]
