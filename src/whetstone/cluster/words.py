"""What is asked of a host, and what it answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MARK = "whetstone-cluster "
"""Begins the line of the answer: a login may print others."""


class Ask(Struct, frozen=True, kw_only=True):
    """Look at a host, start a node there, or stop the one that was started.

    cluster: names the cluster, ``host`` the node in it: both mark the processes of the node.
    head: whether this host is the head; ``port`` is where the head listens, ``address`` what others join.
    token: of the cluster, for a start.
    cpus, object_store_mb: what Ray is told of the machine; None: what it finds itself.
    """

    action: Literal["look", "start", "stop"]
    cluster: str
    host: str
    port: int
    head: bool = False
    address: str = ""
    token: str = ""
    cpus: int | None = None
    object_store_mb: int | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What there is: versions (Ray's is empty where it is missing), the processes of this cluster's node.

    taken: somebody else listens on the head's port. address, token: of the head that runs here.
    stopped: how many processes were ended. wrong: why a node did not start or stop.
    """

    python: str
    whetstone: str
    ray: str
    pids: list[int]
    taken: bool = False
    address: str = ""
    token: str = ""
    stopped: int = 0
    wrong: str = ""
