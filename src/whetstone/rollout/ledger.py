"""The account of every generated token: what it was used for, or why not.

A token is generated once. It is then in flight, trained, replayed or dropped, and in one of these only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from whetstone.algorithm.loss_free import REJECTED, TRUNCATED, UNSCORED
from whetstone.rollout.group_facts import ZERO_VARIANCE, GroupFacts

# The token is older than the staleness allows, in a group that is trained (`flow.batch_composition: mask`).
TOO_OLD = "too_old"

# The environment generated the token, and put it in no sample.
UNUSED = "unused"

# The lease of the token ended with the process of its replica.
DEAD = "dead"

# Another replica finished the prompt first.
DUPLICATE = "duplicate"

# Reasons that a run has without a flow, too. All others are costs of sampling ahead, and of faults.
_ALGORITHM = {ZERO_VARIANCE, UNSCORED, REJECTED, TRUNCATED, UNUSED}


class TokenLedger(Struct):
    """Counts of the tokens of one model. Those that are in no other count are in flight.

    generated: reported by replicas. trained: carried loss in a batch that was trained on. replayed: the same,
    and the trainer trained on the batch again after it had returned to a checkpoint; they are not in
    ``trained``. dropped: never trained on, by reason.
    """

    generated: int = 0
    trained: int = 0
    replayed: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])

    def drop(self, reason: str, tokens: int) -> None:
        """Count tokens that are never trained on."""
        if tokens:
            self.dropped[reason] = self.dropped.get(reason, 0) + tokens

    def compose(self, facts: GroupFacts, oldest: int | None = None) -> int:
        """Count the tokens without loss of a group that joins a batch; return the number of the others.

        oldest: tokens of older weights carry no loss; None: none is too old.
        """
        loss = 0
        for reply, reason in zip(facts.tokens, facts.without_loss, strict=True):
            for version, count in reply.items():
                if reason:
                    self.drop(reason, count)
                elif oldest is not None and version < oldest:
                    self.drop(TOO_OLD, count)
                else:
                    loss += count
        return loss

    def train(self, generated: int, groups: Iterable[tuple[GroupFacts, str | None]]) -> None:
        """Count a round that was sampled with the weights that it trains: its generated tokens, and its
        groups with their drop reasons (None: trained)."""
        self.generated += generated
        for facts, reason in groups:
            generated -= facts.generated
            if reason:
                self.drop(reason, facts.generated)
            else:
                self.trained += self.compose(facts)
        self.drop(UNUSED, generated)

    def saved(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return msgspec.to_builtins(self, str_keys=True)

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> TokenLedger:
        """Return the ledger that ``saved`` describes; nothing of an earlier version is counted."""
        return msgspec.convert(saved, cls, str_keys=True)

    def totals(self, in_flight: Mapping[str, int]) -> dict[str, int]:
        """Return all counts. ``in_flight``: by where the tokens are, computed from the flow's state.

        ``generated`` equals the sum of the others.
        """
        return {
            "generated": self.generated,
            "trained": self.trained,
            "replayed": self.replayed,
            **{f"dropped/{reason}": count for reason, count in sorted(self.dropped.items())},
            **{f"in_flight/{place}": count for place, count in in_flight.items()},
        }


def unaccounted(totals: Mapping[str, int]) -> int:
    """Return by how many tokens the books of ``TokenLedger.totals`` do not close; 0 if they do."""
    return 2 * totals["generated"] - sum(totals.values())


def wasted_share(totals: Mapping[str, int]) -> float | None:
    """Return the share of the decided tokens that were dropped for another reason than the algorithm's.

    Tokens in flight are not decided. None if there are no others.
    """
    decided = {
        name: count for name, count in totals.items() if not name.startswith(("generated", "in_flight/"))
    }
    if not sum(decided.values()):
        return None
    wasted = sum(
        count
        for name, count in decided.items()
        if name.startswith("dropped/") and name.removeprefix("dropped/") not in _ALGORITHM
    )
    return wasted / sum(decided.values())
