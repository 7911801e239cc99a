"""The rules of a run's dataflow, and the error for requests that break them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whetstone.core.errors import UserError

BatchComposition = Literal["drop", "wait", "window", "mask"]


class FlowRules(Struct, frozen=True, kw_only=True):
    """The rules for leasing prompts and composing batches.

    models: the models that are trained; a finished prompt gives one group for each.
    prompts_per_step: groups of a batch.
    staleness: the most versions by which the training weights may be ahead of the oldest token of a group.
        With 0, prompts are drawn in rounds as in the synchronous loop, so the content of a batch does not
        depend on which replica finishes first.
    batch_composition: what happens to groups that sample longer than the staleness allows (staleness above 0
        only); see ``batch_composition.py``.
    shares: the number of shares of a round; one replica samples each (staleness 0 only).
    drop_zero_variance: drop groups whose rewards are all equal; unfiltered: models for which they are kept.
    refill_rounds: the most additional rounds of prompts that replace dropped groups; after that the batch is
        short. With staleness above 0 it has at least one group, see ``dry_prompts``.
    dry_prompts: with staleness above 0, the run ends when this many consecutive prompts, including those of
        all ``refill_rounds``, gave no group.
    lease_s: seconds after which an unfinished prompt is also leased to another replica.
    silence_s: seconds of silence after which a replica loses its leases.
    most_failures: a prompt that was taken back this many times (from dead or late replicas) is dropped.
    keep_saves: batches are kept until this many checkpoints contain them, for a trainer that returns to one.
    """

    models: tuple[str, ...] = ("policy",)
    prompts_per_step: int
    staleness: int = 0
    batch_composition: BatchComposition = "wait"
    shares: int = 1
    refill_rounds: int = 0
    dry_prompts: int = 512
    drop_zero_variance: bool = True
    unfiltered: tuple[str, ...] = ()
    lease_s: float = 1800.0
    silence_s: float = 60.0
    most_failures: int = 5
    keep_saves: int = 2


class FlowRefusal(UserError):
    """A request that the flow refuses every time; a retry cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
