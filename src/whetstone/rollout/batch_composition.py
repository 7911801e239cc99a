"""Composes batches, limits the prompts in progress for later ones, and explains why no batch comes.

The rules of ``batch_composition`` differ in what happens to a group whose oldest token becomes older than the
staleness allows while it is sampled:

drop: the group is dropped as stale.
wait: it does not happen. A batch waits for the prompts that no later batch could use.
window: as wait. In addition, a batch has no group that was drawn more than a window after the oldest prompt
    in progress, so short replies cannot overtake a long one for long.
mask: the group is trained on, and the tokens that are too old carry no loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from whetstone.rollout.events import BatchComposed
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.state import FinishedGroup, FlowState, ModelState

# The training weights are too far ahead of the group's oldest token.
STALE = "stale"

# Part of a batch, while the trainer trains on the one before. With less, the trainer may wait; with more,
# tokens are older (benchmarks/async.md).
_READY = 2 / 3

# The batch was full without the group: another model needed the round.
SURPLUS = "surplus"

# The prompt failed too often: replicas died, failed, or were late.
ABANDONED = "abandoned"


def age(rules: FlowRules, group: FinishedGroup | GroupFacts, version: int) -> int:
    """Return by how many versions ``version`` is ahead of the token of a group that decides whether the group
    is stale: the oldest one, or the newest one if tokens that are too old are masked."""
    token = group.newest if rules.batch_composition == "mask" else group.oldest
    return 0 if token is None else version - token


def prompts_admitted(state: FlowState, rules: FlowRules, versions: Mapping[str, int]) -> int:
    """Return how many more prompts may be drawn for a replica that serves ``versions``; negative: none at
    all.

    A prompt that is drawn now is used after all prompts that were drawn before it. The delay is the number of
    steps whose batches those prompts fill, and must not exceed the staleness of the weights that would sample
    it. No prompt is drawn if it would only wait, see ``_is_ahead``. With several models the one with the
    fewest groups decides. Otherwise it could wait forever once the others have enough; their surplus groups
    are dropped when they become stale.
    """
    room: list[int] = []
    for name, model in state.models.items():
        steps = rules.staleness + 1 - (model.next_batch - versions[name])
        if steps <= 0:
            return -1
        if _is_ahead(state, rules, model):
            room.append(0)
            continue
        # Prompts in progress and finished groups fill the batches before this prompt.
        room.append(steps * rules.prompts_per_step - len(state.pending) - len(model.buffer))
    return max(room)


def _is_ahead(state: FlowState, rules: FlowRules, model: ModelState) -> bool:
    """Return whether sampling is far enough ahead of the trainer of a model, which trains.

    More groups would only wait, and their weights would become older.
    """
    ready, size = len(model.buffer), rules.prompts_per_step
    return model.version < model.next_batch and ready >= _READY * size and ready + len(state.pending) >= size


def batch_from_buffer(state: FlowState, rules: FlowRules, name: str) -> BatchComposed | None:
    """Compose the next batch of a model, oldest tokens first. None if it has to wait.

    A batch is short once ``refill_rounds`` additional rounds of prompts did not fill it. It is never empty.
    Groups that no later batch may use are dropped with it.
    """
    model, version = state.models[name], state.models[name].next_batch
    visible = _visible(state, rules, model)
    # Without this bound, a model that solves everything or nothing would wait for groups forever.
    refilled = prompts_tried(model) >= rules.prompts_per_step * (1 + rules.refill_rounds)
    if len(visible) < rules.prompts_per_step and not (visible and refilled):
        return None
    by_age = sorted(visible, key=lambda item: (-age(rules, item, version), item.draw))
    chosen = by_age[: rules.prompts_per_step]
    if rules.batch_composition in ("wait", "window") and _is_due(state, rules, name, chosen):
        return None
    kept = {item.draw for item in chosen}
    # The remaining groups are used one step later at the earliest, so their age then decides.
    stale = sorted(
        draw
        for draw, item in model.buffer.items()
        if draw not in kept and age(rules, item, version + 1) > rules.staleness
    )
    oldest = version - rules.staleness if rules.batch_composition == "mask" else None
    return BatchComposed(name, version, sorted(kept), {STALE: stale} if stale else {}, oldest)


def window_size(rules: FlowRules) -> int:
    """Return the draws of a window: as many as may be in progress or buffered."""
    return (rules.staleness + 1) * rules.prompts_per_step


def _visible(state: FlowState, rules: FlowRules, model: ModelState) -> list[FinishedGroup]:
    """Return the groups that a batch may use: with windows, those that were not drawn long after the oldest
    prompt in progress."""
    items = model.buffer.values()
    if rules.batch_composition != "window" or not state.pending:
        return [*items]
    end = min(state.pending) + window_size(rules)
    return [item for item in items if item.draw < end]


def _is_due(state: FlowState, rules: FlowRules, name: str, chosen: list[FinishedGroup]) -> bool:
    """Return whether the batch has to wait for prompts in progress: without them in this batch, later batches
    could not train on all groups before these are stale.

    A prompt whose oldest token may be of version ``start`` has to be in one of the batches up to version
    ``start + staleness``. If these have fewer places than such prompts, the rest belongs in this batch. A
    late lease has no deadline: another replica samples its prompt anew.
    """
    model, size = state.models[name], rules.prompts_per_step
    waiting = Counter(
        lease.oldest[name] for serial, lease in state.leases.items() if serial not in state.late
    )
    finished = Counter(item.oldest for item in model.buffer.values())
    taken = Counter(item.oldest for item in chosen)

    def until(counts: Counter[Any], start: int) -> int:
        return sum(count for version, count in counts.items() if version is not None and version <= start)

    for start in waiting:
        later = (start + rules.staleness - model.next_batch) * size
        due = until(waiting, start) + until(finished, start) - later
        if until(taken, start) < min(due, size):
            return True
    return False


def blocking_draw(state: FlowState, rules: FlowRules, name: str) -> int | None:
    """Return the prompt in progress for which a batch waits that has enough groups; None if there is none."""
    if not rules.staleness or len(state.models[name].buffer) < rules.prompts_per_step or not state.pending:
        return None
    if rules.batch_composition == "window":
        return min(state.pending)
    leases = (lease for serial, lease in state.leases.items() if serial not in state.late)
    return min(((lease.oldest[name], lease.draw) for lease in leases), default=(0, None))[1]


def prompts_tried(model: ModelState) -> int:
    """Return how many prompts have been finished or lost since the last batch, except groups
    that were late."""
    late = sum(item.drop_reason in (STALE, SURPLUS) for item in model.dropped_groups)
    return len(model.buffer) + len(model.dropped_groups) - late + model.lost_prompts.get(ABANDONED, 0)


def groups_missing(state: FlowState, rules: FlowRules) -> int:
    """Return how many groups the round's batch still lacks, for the model that lacks most."""
    fewest = min(
        len(model.buffer)
        for model in state.models.values()
        if state.round and model.next_batch <= state.round.version
    )
    return max(0, rules.prompts_per_step - fewest)


def round_finished(state: FlowState) -> bool:
    """Return whether every prompt of the rounds so far is finished or lost."""
    return state.round is not None and not state.pending


def wants_refill(state: FlowState, rules: FlowRules) -> bool:
    """Return whether another round should replace the dropped groups of a finished round."""
    return (
        state.round is not None
        and round_finished(state)
        and state.round.rounds <= rules.refill_rounds
        and groups_missing(state, rules) > 0
    )


def batch_from_round(state: FlowState, rules: FlowRules, name: str) -> BatchComposed | None:
    """Compose the batch of a round in draw order; None until the round and its refills are complete.

    The batch is short if the refill rounds did not fill it.
    """
    model = state.models[name]
    if state.round is None or state.round.version != model.next_batch:
        return None
    if not round_finished(state) or wants_refill(state, rules):
        return None
    draws = sorted(model.buffer)
    kept, surplus = draws[: rules.prompts_per_step], draws[rules.prompts_per_step :]
    return BatchComposed(name, model.next_batch, kept, {SURPLUS: surplus} if surplus else {})


def deal_shares(draws: range, shares: int) -> list[list[int]]:
    """Deal draws round-robin. Neighbours in a sorted dataset have similar lengths, so the shares have too."""
    return [share for rank in range(shares) if (share := list(draws[rank::shares]))]


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
        f"{_reward_summary(model)} Train on problems that the model solves sometimes (`whetstone data "
        "difficulty` finds them), raise `trainer.samples_per_prompt` or `sampling.max_tokens`, or set "
        "`algorithm.drop_zero_variance: false`"
    )


def dropped_counts(model: ModelState) -> str:
    """Return the number of groups dropped since the last batch, by reason; empty if there are none."""
    reasons = Counter(item.drop_reason for item in model.dropped_groups)
    reasons.update(model.lost_prompts)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _reward_summary(model: ModelState) -> str:
    rewards = [reward for item in model.dropped_groups for reward in item.facts.scored()]
    if not rewards:
        return " No reply has a reward."
    if min(rewards) == max(rewards):
        return f" The reward of every reply is {rewards[0]:g}."
    return f" The mean reward is {fmean(rewards):.3f}, and the replies to one prompt have equal rewards."
