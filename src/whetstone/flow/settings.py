"""Asynchronous training: how far weights may run ahead, who samples, and where the roles find each other."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whetstone.settings import Count, Natural, NonEmpty, Section
from whetstone.weights.settings import WeightsSection

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=1)]


class Gpus(Section):
    """Which devices the processes see that `whetstone train` starts, each as in CUDA_VISIBLE_DEVICES, such as
    "0" or "4,5"; all where nothing is said.

    trainers: of the trainer of each model. replicas: of each rollout replica. evaluation: of the process of
    `evaluation.process: separate`, whoever starts its trainer.
    """

    trainers: tuple[NonEmpty, ...] = ()
    replicas: tuple[NonEmpty, ...] = ()
    evaluation: str = ""


class Resources(Section):
    """What a role is given of a node of a cluster.

    gpus: below 1 a part of one, which others share; None: as many as ``flow.gpus`` names for one such role.
    """

    cpus: Annotated[float, Field(ge=0)] = 1.0
    gpus: Annotated[float, Field(ge=0)] | None = None

    def filled(self, seen: tuple[str, ...]) -> Resources:
        """With a number of devices, that of the first list of ``seen`` where none is said."""
        if self.gpus is not None:
            return self
        return self.model_copy(update={"gpus": float(len(seen[0].split(","))) if seen else 0.0})

    def said(self) -> str:
        """In words."""
        return f"{self.cpus:g} CPU and {self.gpus or 0:g} GPU"


class RoleResources(Section):
    """What `whetstone train --ray` asks for."""

    trainer: Resources = Resources()
    replica: Resources = Resources()


class FlowSection(Section):
    """A run whose replicas sample while its trainer learns, in processes of their own.

    staleness: by how many versions the weights that train may be ahead of the oldest token of a group. 0:
        sampling and learning take turns, as in a run without this section, with the same numbers.
    ranks: processes over which each trainer is spread, on the machine that it is on.
    replicas: rollout replicas that `whetstone train` starts, on this machine or over a cluster.
    resources: what the trainer and each replica are given of a Ray cluster, with `--ray`.
    room: prompts that a replica works on at once; 0: as many as may be under way.
    shares: staleness 0 only: in how many shares a batch is dealt, each sampled by one replica. With more than
        one the engine's log-probs are those of one process up to rounding.
    lease_s: a prompt that is not finished by then is given to another replica, too.
    silence_s: a replica that says nothing for so long has lost its prompts.
    most_failures: a prompt that was taken back so often is dropped, and counted.
    stall_s: who waits for longer is named in the log.
    gpus: which devices each process sees.
    restarts: `whetstone train` starts a role that has died again, each at most so often.
    host, port: where the flow listens; port 0 is a free one. Beyond loopback a token is needed.
    url: where replicas and trainer find it, such as http://10.0.0.1:8090, if roles are started one by one.
    log: the folder of the flow's log; empty for one in the folder of the run.
    weights: how they travel from the trainer to the replicas.
    """

    staleness: Natural = 1
    ranks: Count = 1
    replicas: Count = 1
    resources: RoleResources = RoleResources()
    room: Natural = 0
    shares: Count = 1
    lease_s: Seconds = 1800.0
    silence_s: Seconds = 60.0
    most_failures: Count = 5
    stall_s: Seconds = 60.0
    restarts: Natural = 5
    gpus: Gpus = Gpus()
    host: NonEmpty = "127.0.0.1"
    port: Port = 0
    url: str = ""
    log: str = ""
    weights: WeightsSection = WeightsSection()

    @property
    def needs_of_trainer(self) -> Resources:
        """What a trainer is given of a cluster."""
        return self.resources.trainer.filled(self.gpus.trainers)

    @property
    def needs_of_replica(self) -> Resources:
        """What a rollout replica is given of a cluster."""
        return self.resources.replica.filled(self.gpus.replicas)

    def room_for(self, prompts_per_step: int) -> int:
        """For how many prompts a replica has room."""
        return self.room or (self.staleness + 1) * prompts_per_step

    def obstacle(self, prompts_per_step: int, *, deterministic: bool) -> str | None:
        """Why no batch could ever be made so, or not the one that is promised; None where nothing is."""
        if self.staleness and deterministic:
            return (
                "`deterministic` promises the same batches every time, and with `flow.staleness` above 0 "
                "they depend on who is first; set it to 0, or `deterministic` to false"
            )
        if self.staleness and self.shares > 1:
            return (
                "`flow.shares` are for `flow.staleness: 0`; otherwise replicas take what they have room for"
            )
        if self.gpus.replicas and len(self.gpus.replicas) != self.replicas:
            return (
                f"`flow.gpus.replicas` has {len(self.gpus.replicas)} entries, and `flow.replicas` is "
                f"{self.replicas}; give one for each, or none"
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
