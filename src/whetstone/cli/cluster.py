"""``whetstone cluster``: a Ray cluster out of a host file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from whetstone.cluster.hosts import Host, read_hosts
from whetstone.cluster.reach import Way
from whetstone.cluster.running import DEFAULT_PORT, RayCluster
from whetstone.errors import UserError

_DOES = {
    "start": "start Ray on all hosts of the file; the first is the head",
    "join": "start Ray on those hosts of the file that have no node of the cluster yet",
    "stop": "end what start and join have started, and nothing else",
}


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "cluster",
        description="Start, extend and stop a Ray cluster. HOSTS is a file with one host a line, "
        "[USER@]HOST[:SSHPORT]; the first is the head. Hosts are reached by ssh, without a question; "
        "`localhost` is this machine, without ssh. A Ray cluster belongs into a network that only trusted "
        "machines reach.",
        epilog="example: whetstone cluster start hosts.txt && whetstone judge serve --ray",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does in _DOES.items():
        action = actions.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        action.add_argument("hosts", metavar="HOSTS", help="the host file")
        action.add_argument(
            "--port", type=int, default=DEFAULT_PORT, metavar="N", help="of the head (default: 6379)"
        )
        action.add_argument(
            "--python",
            default=sys.executable,
            metavar="PATH",
            help="the Python of every host that has Whetstone and Ray (default: the path of this one)",
        )
        action.add_argument("--ssh-config", metavar="FILE", help="what ssh is told by -F")
        if name != "stop":
            action.add_argument(
                "--cpus", type=int, metavar="N", help="of each host that is started (default: all)"
            )
            action.add_argument(
                "--object-store-mb", type=int, metavar="MB", help="of each host (default: what Ray takes)"
            )


def run(args: argparse.Namespace) -> int:
    """Start, join or stop. Status 0 when every host did what it was asked."""
    hosts = read_hosts(args.hosts)
    if not 0 < args.port < 65536:
        raise UserError(f"--port {args.port}: expected 1 to 65535")
    way = Way(args.python, args.ssh_config)
    if args.action == "stop":
        return _stop(RayCluster(hosts, way, port=args.port))
    if args.cpus is not None and args.cpus < 0:
        raise UserError(f"--cpus {args.cpus}: expected 0 (no judging there) or more")
    if args.object_store_mb is not None and args.object_store_mb < 80:
        raise UserError(f"--object-store-mb {args.object_store_mb}: Ray asks for 80 at least")
    sizes = {"cpus": args.cpus, "object_store_mb": args.object_store_mb}
    cluster = RayCluster(hosts, way, port=args.port, **sizes)
    return _start(cluster, hosts) if args.action == "start" else _join(cluster)


def _start(cluster: RayCluster, hosts: list[Host]) -> int:
    address = cluster.start()
    print(f"{len(hosts)} of {len(hosts)} hosts run; the head is {address}")
    print(f"on a host of the cluster: whetstone judge serve --ray {address}")
    return 0


def _join(cluster: RayCluster) -> int:
    names = cluster.join()
    print(f"joined: {', '.join(names)}" if names else "every host of the file has a node already")
    return 0


def _stop(cluster: RayCluster) -> int:
    for name, count in cluster.stop().items():
        print(f"{name}: {count} processes ended" if count else f"{name}: nothing of this cluster runs")
    return 0
