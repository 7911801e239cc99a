"""Composes batches, and limits how many prompts may be in progress for later batches."""

from __future__ import annotations

from collections.abc import Mapping

from whetstone.rollout.events import BatchComposed
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.state import FinishedGroup, FlowState, ModelState

# The training weights are too far ahead of the group's oldest token.
STALE = "stale"

# The batch was full without the group: another model needed the round.
SURPLUS = "surplus"

# The prompt failed too often: replicas died, failed, or were late.
ABANDONED = "abandoned"


def age(model: ModelState, item: FinishedGroup, version: int) -> int:
    """Return by how many versions ``version`` is ahead of the oldest token of a group."""
    return 0 if item.facts.oldest is None else version - item.facts.oldest


def prompts_admitted(state: FlowState, rules: FlowRules, versions: Mapping[str, int]) -> int:
    """Return how many more prompts may be drawn for a replica that serves ``versions``; negative: none at
    all.

    A prompt that is drawn now is used after all prompts that were drawn before it. The delay is the number of
    steps whose batches those prompts fill, and must not exceed the staleness of the weights that would sample
    it. With several models the one with the fewest groups decides. Otherwise it could wait forever once the
    others have enough; their surplus groups are dropped when they become stale.
    """
    room: list[int] = []
    for name, model in state.models.items():
        steps = rules.staleness + 1 - (model.next_batch - versions[name])
        if steps <= 0:
            return -1
        # Prompts in progress and finished groups fill the batches before this prompt.
        room.append(steps * rules.prompts_per_step - len(state.pending) - len(model.buffer))
    return max(room)


def batch_from_buffer(state: FlowState, rules: FlowRules, name: str) -> BatchComposed | None:
    """Compose the next batch of a model, groups that become stale first. None if there are too few groups.

    A batch is short once ``refill_rounds`` additional rounds of prompts did not fill it. It is never empty.
    Groups that no later batch may use are dropped with it.
    """
    model, version = state.models[name], state.models[name].next_batch
    fit = sorted((-age(model, item, version), draw) for draw, item in model.buffer.items())
    # Without this bound, a model that solves everything or nothing would wait for groups forever.
    refilled = prompts_tried(model) >= rules.prompts_per_step * (1 + rules.refill_rounds)
    if len(fit) < rules.prompts_per_step and not (fit and refilled):
        return None
    kept = sorted(draw for _, draw in fit[: rules.prompts_per_step])
    # The remaining groups are used one step later at the earliest, so their age then decides.
    stale = sorted(draw for older, draw in fit[rules.prompts_per_step :] if 1 - older > rules.staleness)
    return BatchComposed(name, version, kept, {STALE: stale} if stale else {})


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
