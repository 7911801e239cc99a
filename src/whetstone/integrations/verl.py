"""verl: ``compute_score`` for its reward loop, and one for the managers before it. Read in verl 0.9.1.

    reward.custom_reward_function.path=pkg://whetstone.integrations.verl
    reward.custom_reward_function.name=compute_score

Rows are those of ``whetstone data convert --export-format verl-whole``, whose ground truth is the whole
problem; ``reward_kwargs`` are the settings of ``RewardSettings``. verl does not support a missing reward.
"""

from __future__ import annotations

from typing import Any

from whetstone.integrations.rewards import shared

# Additional arguments from verl, for rewards that use a model.
_VERL_ARGUMENTS = {"reward_router_address", "reward_model_tokenizer"}


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **settings: Any
) -> dict[str, Any]:
    """For ``verl.experimental.reward_loop``: the reward as ``score``, and values to log.

    Raises NoReward if there is no verdict and ``no_reward`` is not set.
    """
    rewards = shared(_reward_options(settings))
    scored = await rewards.scored(solution_str, ground_truth)
    return {
        "score": rewards.number(scored),
        "acc": float(scored.solved),
        "verdict": scored.judgement.verdict.value if scored.judgement else "none",
        "judged": float(scored.reward is not None),
    }


def compute_score_sync(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **settings: Any
) -> float:
    """For the managers ``naive``, ``dapo`` and ``prime`` of ``verl.workers``, as a number.

    ``prime`` calls it in 64 processes that live for one batch. Each starts its own judge, with one worker
    unless ``judge.workers`` says otherwise. It scores an exception as 0.
    """
    options = _reward_options(settings)
    options["judge"] = {"workers": 1, **(options.get("judge") or {})}
    rewards = shared(options)
    return rewards.number(rewards.submit(solution_str, ground_truth).result())


def _reward_options(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _VERL_ARGUMENTS}
