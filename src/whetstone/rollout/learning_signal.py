"""Detects prompts that give no groups to train on, and explains what to change."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from whetstone.rollout.batch_composition import prompts_tried
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.state import FlowState, ModelState


def no_signal_reason(state: FlowState, rules: FlowRules, name: str) -> str:
    """Return why the run cannot continue: too many consecutive prompts gave no group. Empty if it can
    continue.

    With staleness 0 the batch is empty instead, as in a run in one process.
    """
    model = state.models[name]
    most = max(rules.dry_prompts, rules.prompts_per_step * (1 + rules.refill_rounds))
    if not rules.staleness or model.buffer or prompts_tried(model) < most:
        return ""
    return (
        f"{prompts_tried(model)} consecutive prompts gave no group to train {name} on: "
        f"{dropped_counts(model)}."
        f"{_rewards(model)} Train on problems that the model solves sometimes (`whetstone data difficulty` "
        "finds them), raise `trainer.samples_per_prompt` or `sampling.max_tokens`, or set "
        "`algorithm.drop_zero_variance: false`"
    )


def dropped_counts(model: ModelState) -> str:
    """Return the number of groups dropped since the last batch, by reason; empty if there are none."""
    reasons = Counter(item.drop_reason for item in model.dropped_groups)
    reasons.update(model.lost_prompts)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _rewards(model: ModelState) -> str:
    rewards = [reward for item in model.dropped_groups for reward in item.facts.scored()]
    if not rewards:
        return " No reply has a reward."
    if min(rewards) == max(rewards):
        return f" The reward of every reply is {rewards[0]:g}."
    return f" The mean reward is {fmean(rewards):.3f}, and the replies to one prompt have equal rewards."
