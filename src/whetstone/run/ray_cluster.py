"""A Ray cluster from a host file: writes Ray's own cluster file (provider ``local``) and calls ``ray up``.

Ray starts the head, and the head starts the other hosts over ssh. The processes of the cluster require a
token, which ``ray up`` copies to the place where Ray looks for it on each host.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command
from whetstone.core.outputs import write_file
from whetstone.core.ray_driver import TOKEN_FILE

_LINE = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<name>[\w.:-]+)")
_MOST_AT_ONCE = 32
_HOST_NEEDS = (
    "sshd that lets you in without a question, rsync, and the same versions of Python, Ray and Whetstone at "
    "the same path"
)
_EXAMPLE = "one host a line, as [USER@]HOST; the first is the head"


class ClusterPlan(Struct, frozen=True):
    """The hosts of a cluster, the first of which is the head, and how Ray is started on them.

    python: the interpreter that has Whetstone and Ray, the same path on every host. ssh_key: the private key
    for ssh; None: ssh's own choice. cpus, object_store_mb: for each node; None: Ray's choice.
    """

    hosts: list[str]
    user: str
    port: int
    python: str
    ssh_key: str | None = None
    cpus: int | None = None
    object_store_mb: int | None = None

    @property
    def head(self) -> str:
        """The address of the head, as clients give it."""
        return f"{self.hosts[0]}:{self.port}"


def read_hosts(path: str) -> tuple[list[str], str]:
    """Return the hosts of a file and their user. Raises UserError.

    ``#`` starts a comment. Words after the host, such as ``slots=8`` in MPI's files, are ignored.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; give a file with {_EXAMPLE}") from None
    hosts, users = list[str](), set[str]()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if (match := _LINE.fullmatch(words[0])) is None or words[0].startswith("-"):
            raise UserError(f"{path}:{number}: {words[0]!r} is not a host; expected {_EXAMPLE}")
        if match["name"] in hosts:
            raise UserError(f"{path}:{number}: {match['name']} occurs twice; a machine is one node")
        hosts.append(match["name"])
        users.add(match["user"] or getpass.getuser())
    if not hosts:
        raise UserError(f"{path}: no host in it; write {_EXAMPLE}")
    if len(users) > 1:
        raise UserError(f"{path}: several users ({', '.join(sorted(users))}); Ray uses one for all hosts")
    return hosts, users.pop()


def start_cluster(plan: ClusterPlan, file: Path) -> None:
    """Write the cluster file and start the cluster, or restart it with a changed plan. Raises UserError."""
    if find_spec("ray") is None:
        raise UserError(f"Ray is not installed; install it: {install_command('ray')}")
    check = f"command -v rsync >/dev/null && {plan.python} -c 'import ray, whetstone'"
    # Ray itself would retry for minutes.
    _raise_failures(_run_on(plan.hosts, plan.user, plan.ssh_key, check))
    token = file.with_suffix(".token")
    if not token.exists():
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(secrets.token_hex(32))
    write_file(file, [yaml.safe_dump(cluster_config(plan, token), sort_keys=False).encode()])
    _run_ray_up(file)


def stop_cluster(file: Path) -> None:
    """Stop Ray on all hosts of a cluster file. Raises UserError.

    ``ray down`` does not end for a cluster of several hosts of provider ``local`` (Ray 2.60).
    """
    if not file.exists():
        raise UserError(f"{file}: there is no such cluster file; `whetstone cluster start` writes it")
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    provider, auth = config["provider"], config["auth"]
    stop = config["head_start_ray_commands"][0]
    failures = list[str]()
    # The head goes first: its autoscaler would start the others again. They are stopped even if it fails.
    for hosts in ([provider["head_ip"]], provider["worker_ips"]):
        command = f"{stop} && rm -f {TOKEN_FILE}"
        failures += _run_on(hosts, auth["ssh_user"], auth.get("ssh_private_key"), command)
    _raise_failures(failures)


def _run_on(hosts: list[str], user: str, ssh_key: str | None, command: str) -> list[str]:
    """Run a command on each host over ssh. Returns the reason for each host where it failed."""
    key = ["-i", ssh_key] if ssh_key is not None else []
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "StrictHostKeyChecking=no", *key]

    def failure(host: str) -> str:
        words = ["ssh", *options, f"{user}@{host}", command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        lines = done.stderr.strip().splitlines() or ["no message"]
        return f"{host}: `{' '.join(words)}` failed ({lines[-1]})" if done.returncode != 0 else ""

    with ThreadPoolExecutor(_MOST_AT_ONCE) as threads:
        return [reason for reason in threads.map(failure, hosts) if reason]


def _raise_failures(failures: list[str]) -> None:
    if failures:
        raise UserError(f"{'; '.join(failures)}; every host needs {_HOST_NEEDS}")


def cluster_config(plan: ClusterPlan, token: Path) -> dict[str, Any]:
    """Return the content of Ray's cluster file."""
    ray = f"{plan.python} -m ray.scripts.scripts"
    # Ray starts actors at nice 15 by default. Other work on the machine would starve the judge's workers.
    start = f"RAY_AUTH_MODE=token RAY_worker_niceness=0 {ray} start --disable-usage-stats"
    if plan.cpus is not None:
        start += f" --num-cpus={plan.cpus}"
    if plan.object_store_mb is not None:
        start += f" --object-store-memory={plan.object_store_mb << 20}"
    head = f"--head --port={plan.port} --include-dashboard=false"
    workers = plan.hosts[1:]
    return {
        "cluster_name": f"whetstone-{plan.hosts[0]}-{plan.port}",
        "provider": {"type": "local", "head_ip": plan.hosts[0], "worker_ips": workers},
        "auth": {
            "ssh_user": plan.user,
            **({"ssh_private_key": plan.ssh_key} if plan.ssh_key is not None else {}),
        },
        "min_workers": len(workers),
        "max_workers": len(workers),
        "file_mounts": {TOKEN_FILE: str(token.resolve())},
        "head_start_ray_commands": [
            f"{ray} stop",
            f"{start} {head} --autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": [f"{ray} stop", f"{start} --address=$RAY_HEAD_IP:{plan.port}"],
    }


def _run_ray_up(file: Path) -> None:
    """Run Ray's cluster launcher in the foreground. Raises UserError if it fails."""
    options = ["-y", "--no-config-cache", "--disable-usage-stats"]
    words = [sys.executable, "-m", "ray.scripts.scripts", "up", *options, str(file)]
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",  # the launcher itself does not join the cluster
        "RAY_USAGE_STATS_ENABLED": "0",
        # Version 2 counts the head as one of the workers, so that it would start one host too few (Ray 2.60).
        "RAY_UP_enable_autoscaler_v2": "0",
    }
    status = subprocess.run(words, env=environment, check=False).returncode
    if status != 0:
        raise UserError(
            f"`ray up {file}` ended with status {status}; its messages are above. Every host needs "
            f"{_HOST_NEEDS}"
        )
