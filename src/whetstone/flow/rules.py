"""What the dataflow of a run goes by."""

from __future__ import annotations

from msgspec import Struct

from whetstone.errors import UserError


class Rules(Struct, frozen=True, kw_only=True):
    """How prompts are leased and batches made.

    models: who is trained; a finished prompt brings a group for each of them.
    prompts_per_step: the groups of a batch.
    staleness: by how many versions the weights that train may be ahead of the oldest token of a group. 0:
        rounds, as the synchronous loop draws them; what a batch is made of then never depends on who was
        first.
    shares: in how many shares a round is dealt, each sampled by one replica (staleness 0 only).
    drop_zero_variance, unfiltered: groups whose rewards are all equal are dropped, but of these models.
    refill_rounds: dropped groups are replaced by at most so many further rounds of prompts; then the batch is
        short. With staleness above 0 it has at least one group, see ``dry_prompts``.
    dry_prompts: with staleness above 0, the run ends when at least so many prompts in a row, and those of all
        ``refill_rounds``, brought no group for a batch.
    lease_s: a prompt that is not finished by then is leased to another replica, too.
    silence_s: a replica that says nothing for so long has no leases any more.
    most_failures: a prompt that was taken back so often, from the dead and the late, is dropped.
    keep_saves: batches are kept until so many checkpoints contain them, for a trainer that goes back to one.
    """

    models: tuple[str, ...] = ("policy",)
    prompts_per_step: int
    staleness: int = 0
    shares: int = 1
    refill_rounds: int = 0
    dry_prompts: int = 512
    drop_zero_variance: bool = True
    unfiltered: tuple[str, ...] = ()
    lease_s: float = 1800.0
    silence_s: float = 60.0
    most_failures: int = 5
    keep_saves: int = 2

    def check(self) -> None:
        """Raise UserError for rules by which no batch could ever be made."""
        if not self.models or len(set(self.models)) < len(self.models):
            raise UserError("the flow needs the names of its models, each once")
        if self.prompts_per_step < 1 or self.shares < 1:
            raise UserError("a batch needs at least one prompt, and a round at least one share")
        if self.staleness == 0 and self.prompts_per_step < self.shares:
            raise UserError(
                f"a round of {self.prompts_per_step} prompts cannot be dealt in {self.shares} shares: raise "
                "the prompts of a step, or have fewer shares"
            )
        if self.staleness > 0 and self.shares > 1:
            raise UserError("shares are for staleness 0; otherwise each replica takes what it has room for")
        if min(self.staleness, self.refill_rounds) < 0:
            raise UserError("staleness and refill rounds begin at 0")
        if min(self.most_failures, self.keep_saves, self.dry_prompts) < 1:
            raise UserError("failures, kept checkpoints and prompts without a group begin at 1")
        if min(self.lease_s, self.silence_s) <= 0:
            raise UserError("leases and silence last longer than 0 seconds")
