"""``whetstone cluster``: starts and stops a Ray cluster from a host file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.run.ray_cluster import ClusterPlan, read_hosts, start_cluster, stop_cluster

_DEFAULT_PORT = 6379


class _ClusterAction(Struct, frozen=True, kw_only=True):
    """An action on a cluster, and its hosts."""

    action: Annotated[
        Literal["start", "stop"],
        Flag(
            "start: write Ray's cluster file, HOSTS.ray.yaml, and restart Ray on all hosts; stop: stop Ray "
            "on all hosts",
            positional=True,
        ),
    ]
    hosts: Annotated[str, Flag("the host file", "HOSTS", positional=True)]
    port: Annotated[int, Meta(gt=0, lt=65536), Flag("the port of the head", "N")] = _DEFAULT_PORT
    python: Annotated[
        str,
        Flag("the Python of every host that has Whetstone and Ray (default: the path of this one)", "PATH"),
    ] = sys.executable
    ssh_key: Annotated[str | None, Flag("the private key for ssh, copied to the head", "FILE")] = None
    cpus: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Flag("CPUs of each host; 0: no judging there (default: all)", "N"),
    ] = None
    object_store_mb: Annotated[
        Annotated[int, Meta(ge=80)] | None, Flag("object store of each host (default: Ray's choice)", "MB")
    ] = None


@command(
    "cluster",
    description="Start a Ray cluster with `ray up`, and stop it. HOSTS is a file of one host "
    "per line, [USER@]HOST; the first is the head. ssh must reach every host without a question. Ray's "
    "other clusters on these hosts are stopped. Only trusted machines may reach a Ray cluster.",
    epilog="example: whetstone cluster start hosts.txt && whetstone judge serve --ray",
)
def change_cluster(what: _ClusterAction) -> int:
    """Start or stop. Returns 0 when Ray has succeeded."""
    file = Path(what.hosts).with_suffix(".ray.yaml")
    if what.action == "stop":
        if what.cpus is not None or what.object_store_mb is not None:
            raise UserError("--cpus and --object-store-mb are for `start`")
        stop_cluster(file)
        return 0
    hosts, user = read_hosts(what.hosts)
    sizes = {"cpus": what.cpus, "object_store_mb": what.object_store_mb}
    plan = ClusterPlan(hosts, user, what.port, what.python, what.ssh_key, **sizes)
    start_cluster(plan, file)
    print(f"on a host of the cluster: whetstone judge serve --ray {plan.head}")
    return 0
