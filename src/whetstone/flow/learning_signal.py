"""Whether prompts bring groups that a model can learn from, and what to do when they do not."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from whetstone.flow.books import Books, ModelBooks
from whetstone.flow.composing import tried
from whetstone.flow.rules import Rules


def no_signal(books: Books, rules: Rules, name: str) -> str:
    """Why the run cannot go on: too many prompts in a row without a group for a batch. Empty where it can.

    With staleness 0 the batch is made empty instead, as in a run of one process.
    """
    model = books.models[name]
    most = max(rules.dry_prompts, rules.prompts_per_step * (1 + rules.refill_rounds))
    if not rules.staleness or model.buffer or tried(model) < most:
        return ""
    return (
        f"{tried(model)} prompts in a row brought no group to train {name} on: {dropped(model)}."
        f"{_rewards(model)} Train on problems that the model solves sometimes (`whetstone data difficulty` "
        "finds them), raise `trainer.samples_per_prompt` or `sampling.max_tokens`, or set "
        "`algorithm.drop_zero_variance: false`"
    )


def dropped(model: ModelBooks) -> str:
    """How many groups were dropped since the last batch, by reason; empty where none was."""
    reasons = Counter(item.reason for item in model.aside)
    reasons.update(model.lost)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _rewards(model: ModelBooks) -> str:
    rewards = [reward for item in model.aside for reward in item.facts.scored()]
    if not rewards:
        return " No reply has a reward."
    if min(rewards) == max(rewards):
        return f" The reward of every reply is {rewards[0]:g}."
    return f" The mean reward is {fmean(rewards):.3f}, and the replies to one prompt have equal rewards."
