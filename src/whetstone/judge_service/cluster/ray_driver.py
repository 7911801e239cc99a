"""A Ray cluster, joined by this process: the one module that knows Ray.

Ray moves calls and answers with its own transport, which trusts everybody who has its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
from typing import Any

from msgspec import Struct

from whetstone.errors import UserError
from whetstone.judge_service.cluster.ray_token import variables_for

AUTO = "auto"
"""The cluster that this machine is part of."""
_REASON = 300
_KNOCK_S = 10.0


class ActorLost(Exception):
    """An actor cannot be reached any more: its process, its node or the way to it is gone."""


class RayNode(Struct, frozen=True):
    """A node that Ray believes to be alive. ``resources``: what it was told of, such as CPU and GPU."""

    id: str
    address: str
    resources: dict[str, float]

    @property
    def name(self) -> str:
        """What people call it: several nodes of a cluster may be on one machine."""
        return f"{self.address}/{self.id[:6]}"


class RayDriver:
    """This process as a driver of a cluster. Its actors end with it, however it ends."""

    def __init__(self, address: str, who: str) -> None:
        """Join the cluster at ``address``, of which this machine must be part. ``who`` joins, in errors.

        Raises UserError where there is no such cluster, or one of another version, and ModuleNotFoundError
        where Ray is not installed.
        """
        if "://" in address:
            raise UserError(
                f"{address}: give HOST:PORT of the cluster's head; {who} must run on a machine of the "
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

    def nodes(self) -> list[RayNode]:
        """Those that are alive. Raises ActorLost where the head does not answer."""
        try:
            nodes = self._ray.nodes()
        except Exception as error:  # Ray's own, of several kinds
            raise ActorLost(_short(error)) from None
        return [
            RayNode(node["NodeID"], node["NodeManagerAddress"], dict(node["Resources"]))
            for node in nodes
            if node["Alive"]
        ]

    def own_node(self) -> str:
        """The id of the node that this process is on."""
        return str(self._ray.get_runtime_context().get_node_id())

    def start(
        self,
        actor: type[Any],
        setup: bytes,
        *,
        node: str | None,
        cpus: float,
        gpus: float = 0.0,
        concurrency: int = 16,
    ) -> RayActor:
        """An actor of the class ``actor``, which is given ``setup``, and which Ray does not start again.

        node: where, and nowhere else; None: where these resources are free, far from others. Raises
        ActorLost.
        """
        where = "SPREAD" if node is None else self._on(node, soft=False)
        try:
            made = (
                self._ray.remote(actor)
                .options(
                    num_cpus=cpus,
                    num_gpus=gpus,
                    max_restarts=0,
                    max_task_retries=0,
                    max_concurrency=concurrency,
                    enable_task_events=False,
                    scheduling_strategy=where,
                )
                .remote(setup)
            )
        except self._errors.RayError as error:
            raise ActorLost(_short(error)) from None
        return RayActor(self._ray, self._errors, made)

    def close(self) -> None:
        """Leave the cluster; Ray ends the actors of this process."""
        self._ray.shutdown()


class RayActor:
    """An actor on some node."""

    def __init__(self, ray: Any, errors: Any, actor: Any) -> None:
        self._ray, self._errors, self._actor = ray, errors, actor

    async def call(self, method: str, *given: Any, silence_s: float | None = None) -> Any:
        """What a method returns. Raises ActorLost, also where nothing came for ``silence_s``."""
        try:
            async with asyncio.timeout(silence_s):
                return await getattr(self._actor, method).remote(*given)
        except TimeoutError:
            raise ActorLost(f"it said nothing for {silence_s:.0f} s") from None
        except self._errors.RayError as error:
            raise ActorLost(_short(error)) from None

    def end(self) -> None:
        """End it at once."""
        with contextlib.suppress(Exception):  # it is gone already, or the whole cluster is
            self._ray.kill(self._actor, no_restart=True)


def _knock(address: str) -> None:
    """Raise OSError or ValueError where nobody listens: Ray itself would try for minutes."""
    if address != AUTO:
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit()):
            raise ValueError("expected HOST:PORT")
        socket.create_connection((host, int(port)), _KNOCK_S).close()


def _short(error: Exception) -> str:
    """What Ray says, without its traceback from afar and its page of advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "died" in line] or lines
    return (telling[-1] if telling else type(error).__name__)[:_REASON]
