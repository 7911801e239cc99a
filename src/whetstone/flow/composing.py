"""What a batch is made of, and how many prompts may be under way for the batches to come."""

from __future__ import annotations

from collections.abc import Mapping

from whetstone.flow.books import Books, Item, ModelBooks
from whetstone.flow.events import Composed
from whetstone.flow.rules import Rules

STALE = "stale"
"""The weights that would train on it are too far ahead of its oldest token."""

SURPLUS = "surplus"
"""Its batch was full without it: another model needed the round."""

ABANDONED = "abandoned"
"""Replicas died, failed or were late on it too often."""


def age(model: ModelBooks, item: Item, version: int) -> int:
    """By how many versions ``version`` is ahead of the oldest token of a group."""
    return 0 if item.facts.oldest is None else version - item.facts.oldest


def admitted(books: Books, rules: Rules, versions: Mapping[str, int]) -> int:
    """How many more prompts may be drawn for a replica that serves ``versions``; below 0: for none at all.

    A prompt that is drawn now is used after all that were drawn before it: as many steps later as they fill
    batches. That must not be more than the staleness, counted from the weights that would sample it. Of
    several models the one with fewest groups has the say, or it would wait for ever once the others have
    enough; what these have too much of is dropped when it is stale.
    """
    room: list[int] = []
    for name, model in books.models.items():
        steps = rules.staleness + 1 - (model.next_use - versions[name])
        if steps <= 0:
            return -1
        room.append(steps * rules.prompts_per_step - len(books.wanted) - len(model.buffer))
    return max(room)


def from_buffer(books: Books, rules: Rules, name: str) -> Composed | None:
    """The next batch of a model: the groups that would be stale first. None while there are too few.

    A batch is short once ``refill_rounds`` further rounds of prompts did not fill it, like a batch of rounds.
    It is never empty. Groups that no later batch may use are dropped with it.
    """
    model, version = books.models[name], books.models[name].next_use
    fit = sorted((-age(model, item, version), draw) for draw, item in model.buffer.items())
    refilled = tried(model) >= rules.prompts_per_step * (1 + rules.refill_rounds)
    if len(fit) < rules.prompts_per_step and not (fit and refilled):
        return None
    kept = sorted(draw for _, draw in fit[: rules.prompts_per_step])
    # A batch has to be fresh when it is used, so the rest is looked at by the step after.
    stale = sorted(draw for older, draw in fit[rules.prompts_per_step :] if 1 - older > rules.staleness)
    return Composed(name, version, kept, {STALE: stale} if stale else {})


def tried(model: ModelBooks) -> int:
    """How many prompts have been finished or lost since the last batch, except groups that came too late."""
    late = sum(item.reason in (STALE, SURPLUS) for item in model.aside)
    return len(model.buffer) + len(model.aside) - late + model.lost.get(ABANDONED, 0)


def missing(books: Books, rules: Rules) -> int:
    """How many groups the round's batch still lacks, of the model that lacks most."""
    fewest = min(
        len(model.buffer)
        for model in books.models.values()
        if books.round and model.next_use <= books.round.version
    )
    return max(0, rules.prompts_per_step - fewest)


def round_over(books: Books) -> bool:
    """Whether every prompt of the rounds so far is finished or lost."""
    return books.round is not None and not books.wanted


def wants_refill(books: Books, rules: Rules) -> bool:
    """Whether another round is to replace what was dropped of a round that is over."""
    return (
        books.round is not None
        and round_over(books)
        and books.round.rounds <= rules.refill_rounds
        and missing(books, rules) > 0
    )


def from_round(books: Books, rules: Rules, name: str) -> Composed | None:
    """The batch of a round, in the order of draws, short where refilling has come to its end; None before."""
    model = books.models[name]
    if books.round is None or books.round.version != model.next_use:
        return None
    if not round_over(books) or wants_refill(books, rules):
        return None
    draws = sorted(model.buffer)
    kept, surplus = draws[: rules.prompts_per_step], draws[rules.prompts_per_step :]
    return Composed(name, model.next_use, kept, {SURPLUS: surplus} if surplus else {})


def shares_of(draws: range, shares: int) -> list[list[int]]:
    """Draws dealt like cards: neighbours in a sorted dataset are of like length, so shares are, too."""
    return [share for rank in range(shares) if (share := list(draws[rank::shares]))]
