"""A Ray cluster that this process joins as a driver. This is the only module that imports Ray.

Ray pickles calls and answers, and trusts every process that has the cluster's token.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from pathlib import Path
from typing import Any

from msgspec import Struct

from whetstone.core.errors import UserError

# The address of the cluster that this machine is part of.
AUTO = "auto"
# Where Ray reads the token of a cluster, on every host.
TOKEN_FILE = "~/.ray/auth_token"
_MOST_REASON = 300
_CONNECT_S = 10.0


class ActorLost(Exception):
    """An actor cannot be reached: its process, its node or the network failed."""


class RayNode(Struct, frozen=True):
    """A node that Ray considers alive. ``resources`` are its declared ones, such as CPU and GPU."""

    id: str
    address: str
    resources: dict[str, float]

    @property
    def name(self) -> str:
        """The address and a part of the id: several nodes of a cluster may run on one machine."""
        return f"{self.address}/{self.id[:6]}"


class RayDriver:
    """This process as a driver of a Ray cluster. Its actors end with it, however it ends."""

    def __init__(self, address: str, joined_by: str) -> None:
        """Join the cluster at ``address``, of which this machine must be part.

        joined_by: the subject of the error message for a client address.

        Raises UserError if there is no such cluster or its version differs, and ModuleNotFoundError if Ray
        is not installed.
        """
        if "://" in address:
            raise UserError(
                f"{address}: give HOST:PORT of the cluster's head; {joined_by} must run on a machine of the "
                "cluster, not on one that only sends to it"
            )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if Path(TOKEN_FILE).expanduser().exists():  # a cluster without tokens ignores the token
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        self._ray: Any = importlib.import_module("ray")  # reads the variables above when it is imported
        self._errors: Any = importlib.import_module("ray.exceptions")
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        self._on_node: Any = strategies.NodeAffinitySchedulingStrategy
        quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
        try:
            if address != AUTO:
                host, _, port = address.rpartition(":")
                if not (host and port.isdigit()):
                    raise ValueError("expected HOST:PORT")
                socket.create_connection((host, int(port)), _CONNECT_S).close()
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:_MOST_REASON]
            raise UserError(
                f"no Ray cluster at `{address}` that this machine is part of ({reason}); start one with "
                "`whetstone cluster start HOSTS`, or give --ray HOST:PORT of its head (set "
                "RAY_AUTH_MODE=token if the cluster has a token)"
            ) from None

    def nodes(self) -> list[RayNode]:
        """Return the nodes that are alive. Raises ActorLost if the head does not answer."""
        try:
            nodes = self._ray.nodes()
        except Exception as error:  # Ray raises several kinds
            raise ActorLost(_short_reason(error)) from None
        return [
            RayNode(node["NodeID"], node["NodeManagerAddress"], dict(node["Resources"]))
            for node in nodes
            if node["Alive"]
        ]

    def own_node(self) -> str:
        """Return the id of the node of this process."""
        return str(self._ray.get_runtime_context().get_node_id())

    def start(
        self, actor: type[Any], setup: bytes, *, node: str | None, cpus: float, gpus: float = 0.0
    ) -> RayActor:
        """Start an actor of the class ``actor``, constructed with ``setup``. Raises ActorLost.

        node: the id of the only node that may run it. None: any node with free resources, preferring nodes
        without other actors.
        """
        options = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "max_concurrency": 16,
            "enable_task_events": False,
            "scheduling_strategy": "SPREAD" if node is None else self._on_node(node, soft=False),
        }
        try:
            return RayActor(self._ray, self._errors, self._ray.remote(actor).options(**options).remote(setup))
        except self._errors.RayError as error:
            raise ActorLost(_short_reason(error)) from None

    def close(self) -> None:
        """Leave the cluster. Ray ends the actors of this process."""
        self._ray.shutdown()


class RayActor:
    """An actor on a node."""

    def __init__(self, ray: Any, errors: Any, actor: Any) -> None:
        self._ray, self._errors, self._actor = ray, errors, actor

    async def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method. Raises ActorLost."""
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except self._errors.RayError as error:
            raise ActorLost(_short_reason(error)) from None

    def end(self) -> None:
        """Kill the actor."""
        with contextlib.suppress(Exception):  # the actor or the whole cluster is already gone
            self._ray.kill(self._actor, no_restart=True)


def _short_reason(error: Exception) -> str:
    """Return Ray's message without its remote traceback and its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error" in line or "died" in line] or lines
    return (causes[-1] if causes else type(error).__name__)[:_MOST_REASON]
