"""A Ray cluster as a fleet: an actor for each machine that judges. Bytes go there, and bytes come back."""

from __future__ import annotations

from typing import Any

from whetstone.judge_service.cluster.fleet import Machine, NodeLost, Post
from whetstone.judge_service.cluster.node import NodeJudge
from whetstone.judge_service.cluster.ray_driver import AUTO, ActorLost, RayActor, RayDriver


class RayFleet:
    """The cluster at ``address``, of which this machine must be part."""

    def __init__(self, address: str = AUTO, node: type[NodeJudge] = NodeJudge) -> None:
        """Join as a driver; the actors are of the class ``node``. Raises as ``RayDriver`` does."""
        self._driver = RayDriver(address, "the server")
        self._node = node

    def machines(self) -> list[Machine]:
        """Those that Ray believes to be alive, with the CPUs that it was told of."""
        try:
            nodes = self._driver.nodes()
        except ActorLost as error:
            raise NodeLost(str(error)) from None
        return [Machine(node.id, node.name, int(node.resources.get("CPU", 0))) for node in nodes]

    def start(self, machine: Machine, workers: int, setup: bytes) -> Post:
        """An actor on that machine and no other, which Ray does not start again by itself."""
        try:
            return _Actor(self._driver.start(self._node, setup, node=machine.id, cpus=workers))
        except ActorLost as error:
            raise NodeLost(str(error)) from None

    def close(self) -> None:
        """Leave the cluster; Ray ends the actors of this process."""
        self._driver.close()


class _Actor:
    def __init__(self, actor: RayActor) -> None:
        self._actor = actor

    async def call(self, method: str, data: bytes | None, silence_s: float) -> Any:
        """See ``Post``."""
        given = () if data is None else (data,)
        try:
            return await self._actor.call(method, *given, silence_s=silence_s)
        except ActorLost as error:
            raise NodeLost(str(error)) from None

    def end(self) -> None:
        """See ``Post``."""
        self._actor.end()
