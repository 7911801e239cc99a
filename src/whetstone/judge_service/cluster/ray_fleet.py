"""A Ray cluster as a fleet: an actor for each machine that judges. The one module that knows Ray.

Ray moves the calls, with its own transport, which trusts everybody who has its token. What our side gives it
is bytes, and bytes come back. The actors belong to this process, and end with it, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
from typing import Any

from whetstone.errors import UserError
from whetstone.judge_service.cluster.fleet import Machine, NodeLost, Post
from whetstone.judge_service.cluster.node import NodeJudge
from whetstone.judge_service.cluster.ray_token import variables_for

AUTO = "auto"
"""The cluster that this machine is part of."""
_REASON = 300
_KNOCK_S = 10.0


class RayFleet:
    """The cluster at ``address``, of which this machine must be part."""

    def __init__(self, address: str = AUTO, node: type[NodeJudge] = NodeJudge) -> None:
        """Join as a driver; the actors are of the class ``node``.

        Raises UserError where there is no such cluster, or one of another version, and ModuleNotFoundError
        where Ray is not installed.
        """
        if "://" in address:
            raise UserError(
                f"{address}: give HOST:PORT of the cluster's head; the server must run on a machine of the "
                "cluster, not on one that only sends to it"
            )
        ours = {"RAY_USAGE_STATS_ENABLED": "0"}
        if "RAY_AUTH_MODE" not in os.environ:
            ours |= variables_for(address)
        for name, value in ours.items():  # Ray reads them when it is imported
            os.environ.setdefault(name, value)
        self._ray: Any = importlib.import_module("ray")
        self._errors: Any = importlib.import_module("ray.exceptions")
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        self._on: Any = strategies.NodeAffinitySchedulingStrategy
        quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
        try:
            _knock(address)
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            said = " ".join(str(error).split())[:_REASON]
            raise UserError(
                f"no Ray cluster at `{address}` that this machine is part of ({said}); start one with "
                "`whetstone cluster start HOSTS`, or give --ray HOST:PORT of its head (with "
                "RAY_AUTH_MODE=token in the environment, where one that was started otherwise has tokens)"
            ) from None
        self._actor: Any = self._ray.remote(node)

    def machines(self) -> list[Machine]:
        """Those that Ray believes to be alive, with the CPUs that it was told of."""
        try:
            nodes = self._ray.nodes()
        except Exception as error:  # Ray's own, of several kinds: the head does not answer
            raise NodeLost(_short(error)) from None
        return [
            Machine(node["NodeID"], _name(node), int(node["Resources"].get("CPU", 0)))
            for node in nodes
            if node["Alive"]
        ]

    def start(self, machine: Machine, workers: int, setup: bytes) -> Post:
        """An actor on that machine and no other, which Ray does not start again by itself."""
        where = self._on(machine.id, soft=False)
        try:
            actor = self._actor.options(
                num_cpus=workers,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=16,
                enable_task_events=False,
                scheduling_strategy=where,
            ).remote(setup)
        except self._errors.RayError as error:
            raise NodeLost(_short(error)) from None
        return _Actor(self._ray, self._errors, actor)

    def close(self) -> None:
        """Leave the cluster; Ray ends the actors of this process."""
        self._ray.shutdown()


class _Actor:
    def __init__(self, ray: Any, errors: Any, actor: Any) -> None:
        self._ray, self._errors, self._actor = ray, errors, actor

    async def call(self, method: str, data: bytes | None, silence_s: float) -> Any:
        """See ``Post``."""
        given = () if data is None else (data,)
        try:
            async with asyncio.timeout(silence_s):
                return await getattr(self._actor, method).remote(*given)
        except TimeoutError:
            raise NodeLost(f"it said nothing for {silence_s:.0f} s") from None
        except self._errors.RayError as error:
            raise NodeLost(_short(error)) from None

    def end(self) -> None:
        """See ``Post``."""
        with contextlib.suppress(Exception):  # it is gone already, or the whole cluster is
            self._ray.kill(self._actor, no_restart=True)


def _knock(address: str) -> None:
    """Raise OSError or ValueError where nobody listens: Ray itself would try for minutes."""
    if address != AUTO:
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit()):
            raise ValueError("expected HOST:PORT")
        socket.create_connection((host, int(port)), _KNOCK_S).close()


def _name(node: dict[str, Any]) -> str:
    """What people call a node: several of a cluster may be on one machine."""
    return f"{node['NodeManagerAddress']}/{node['NodeID'][:6]}"


def _short(error: Exception) -> str:
    """What Ray says, without its traceback from afar and its page of advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "died" in line] or lines
    return (telling[-1] if telling else type(error).__name__)[:_REASON]
