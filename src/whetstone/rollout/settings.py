"""Settings of asynchronous training: staleness, replicas, addresses, and weight transfer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.settings import Count, Natural, NonEmpty, Section
from whetstone.rollout.flow_rules import BatchComposition
from whetstone.weights.settings import WeightsSection

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=1)]


class Gpus(Section):
    """The devices that each process of `whetstone train` sees, as in CUDA_VISIBLE_DEVICES, such as "0" or
    "4,5". An empty value shows all devices.

    trainers: one entry for each model's trainer. replicas: one entry for each rollout replica. evaluation:
    for the process of `evaluation.process: separate`.
    """

    trainers: tuple[NonEmpty, ...] = ()
    replicas: tuple[NonEmpty, ...] = ()
    evaluation: str = ""


class Resources(Section):
    """Resources of a role on a cluster node.

    cpus: cores that Ray reserves for it.
    gpus: below 1 is a part of one GPU, which other roles share; None: as many as ``flow.gpus`` names for one
    such role.
    """

    cpus: Annotated[float, Field(ge=0)] = 1.0
    gpus: Annotated[float, Field(ge=0)] | None = None

    def with_gpus(self, seen: tuple[str, ...]) -> Resources:
        """Return a copy whose number of GPUs, if it is None, is that of the first entry of ``seen``."""
        if self.gpus is not None:
            return self
        return self.model_copy(update={"gpus": float(len(seen[0].split(","))) if seen else 0.0})

    def describe(self) -> str:
        """Return a short text for messages."""
        return f"{self.cpus:g} CPU and {self.gpus or 0:g} GPU"


class _RoleResources(Section):
    """The resources that `whetstone train --ray` requests.

    trainer: of each model's trainer.
    replica: of each rollout replica.
    """

    trainer: Resources = Resources()
    replica: Resources = Resources()


class FlowSection(Section):
    """A run whose replicas sample while its trainer trains, each in its own process.

    staleness: the most versions by which the training weights may be ahead of the oldest token of a group.
        With 0, sampling and training take turns and give the same numbers as a run without this section.
    batch_composition: what happens to groups that are sampled for more versions than that. ``wait``: nothing
        is dropped, a batch waits for them. ``window``: as ``wait``, and a batch uses no group that was drawn
        more than a window (the prompts that may be in progress) after the oldest prompt in progress.
        ``mask``: the tokens that are too old carry no loss. ``drop``: the whole groups are dropped.
    ranks: processes of each trainer, on one machine.
    replicas: rollout replicas that `whetstone train` starts, on this machine or on a cluster.
    resources: of the trainer and each replica on a Ray cluster, with `--ray`.
    room: prompts that a replica works on at once; 0: as many as may be in progress.
    shares: staleness 0 only: the number of shares of a batch; one replica samples each. With more than one
        share the engine's log-probs equal those of one process up to rounding.
    lease_s: seconds after which an unfinished prompt is also given to another replica.
    silence_s: seconds of silence after which a replica loses its prompts.
    gpus: the devices that each process sees.
    restarts: how often `whetstone train` restarts each role that dies.
    host, port: where the flow listens; port 0 is a free one. Any address beyond loopback needs a token.
    url: the address for replicas and trainers, such as http://10.0.0.1:8090, if roles are started one by one.
    log: the folder of the flow's event log; empty: a folder in the run's folder.
    weights: how weights travel from the trainer to the replicas.
    """

    staleness: Natural = 1
    batch_composition: BatchComposition = "wait"
    ranks: Count = 1
    replicas: Count = 1
    resources: _RoleResources = _RoleResources()
    room: Natural = 0
    shares: Count = 1
    lease_s: Seconds = 1800.0
    silence_s: Seconds = 60.0
    restarts: Natural = 5
    gpus: Gpus = Gpus()
    host: NonEmpty = "127.0.0.1"
    port: Port = 0
    url: str = ""
    log: str = ""
    weights: WeightsSection = WeightsSection()

    @property
    def trainer_resources(self) -> Resources:
        """The resources of a trainer on a cluster."""
        return self.resources.trainer.with_gpus(self.gpus.trainers)

    @property
    def replica_resources(self) -> Resources:
        """The resources of a rollout replica on a cluster."""
        return self.resources.replica.with_gpus(self.gpus.replicas)

    def room_for(self, prompts_per_step: int) -> int:
        """Return the most prompts that a replica holds."""
        return self.room or (self.staleness + 1) * prompts_per_step

    def invalid_reason(
        self, prompts_per_step: int, algorithm: Algorithm, *, deterministic: bool
    ) -> str | None:
        """Return why no batch, or no deterministic one, could be made with these settings, or none that
        ``algorithm`` can train on; None if they are valid."""
        if self.staleness and deterministic:
            return (
                "`deterministic` promises the same batches every time, and with `flow.staleness` above 0 "
                "they depend on which replica finishes first; set it to 0, or `deterministic` to false"
            )
        if self.staleness and self.shares > 1:
            return (
                "`flow.shares` are for `flow.staleness: 0`; otherwise replicas take what they have room for"
            )
        if (reason := self._composition_error(algorithm)) is not None:
            return reason
        if self.gpus.replicas and len(self.gpus.replicas) != self.replicas:
            return (
                f"`flow.gpus.replicas` has {len(self.gpus.replicas)} entries, and `flow.replicas` is "
                f"{self.replicas}; give one for each, or none"
            )
        if self.ranks > prompts_per_step:
            return (
                f"`flow.ranks` is {self.ranks}, more than the {prompts_per_step} prompts of a step; lower "
                "it, or raise `trainer.prompts_per_step`"
            )
        for devices in self.gpus.trainers:
            if len(devices.split(",")) < self.ranks:
                return (
                    f"`flow.gpus.trainers`: `{devices}` are fewer devices than `flow.ranks`, which is "
                    f"{self.ranks}; give one for each rank"
                )
        share = -(-prompts_per_step // self.shares)
        if self.shares > prompts_per_step:
            return (
                f"`flow.shares`: {prompts_per_step} prompts of a step cannot be dealt in {self.shares} shares"
            )
        if not self.staleness and 0 < self.room < share:
            return (
                f"`flow.room` is {self.room}, and with `flow.staleness: 0` a replica samples a whole share, "
                f"which has {share} prompts: no batch could ever be made; raise it, or `flow.shares`"
            )
        return None

    def _composition_error(self, algorithm: Algorithm) -> str | None:
        """Return why ``algorithm`` cannot train on such batches; None if it can."""
        if not self.staleness and self.batch_composition != "wait":
            return (
                f"`flow.batch_composition: {self.batch_composition}` is for batches that are sampled ahead; "
                "with `flow.staleness: 0` no token is too old: raise it, or leave `batch_composition` out"
            )
        if self.batch_composition == "mask" and algorithm.sees_whole_replies:
            return (
                "`flow.batch_composition: mask` trains on parts of replies, and the loss of "
                f"`{algorithm.preset}` is made of whole replies; set it to `wait`"
            )
        if self.batch_composition == "mask" and algorithm.penalises_reward:
            return (
                "`flow.batch_composition: mask` leaves out tokens, and `algorithm.kl_in: reward` needs the "
                "log-probs of every token of a reply; set it to `wait`, or `kl_in` to `loss`"
            )
        return None
