"""``whetstone cluster`` on two hosts: network and process namespaces of this machine, each with its sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import wait_until

NEEDS = ("sshd", "rsync", "ip", "nsenter", "unshare")
MISSING = [name for name in NEEDS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING) or os.getuid() != 0, reason=f"needs root and {', '.join(NEEDS)}"),
]
BRIDGE = "wstest"
# Ray finds the address of a host by its default route. No packet is sent on it.
ADDRESSES = ("10.213.0.1", "10.213.0.2")
SIZES = ("--cpus", "1", "--object-store-mb", "100")


@dataclass
class Hosts:
    """The hosts and the key for ssh."""

    folder: Path
    pids: list[int]

    @property
    def file(self) -> Path:
        path = self.folder / "hosts.txt"
        path.write_text("".join(f"root@{address}\n" for address in ADDRESSES))
        return path

    def run(self, host: int, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["nsenter", "-t", str(self.pids[host]), "-a", "--", "env", "RAY_AUTH_MODE=token", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    def whetstone(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(0, sys.executable, "-m", "whetstone", *words)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    processes = list[subprocess.Popen[bytes]]()
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("link", "set", BRIDGE, "up")
        for number, address in enumerate(ADDRESSES):
            space = f"{BRIDGE}{number}"
            ip("netns", "add", space)
            ip("link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", space, "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", space, "link", "set", device, "up")
            ip("-n", space, "route", "add", "default", "via", "10.213.0.254")
            processes.append(_sshd(folder, space, address))
        pids = [_child(process.pid) for process in processes]
        yield Hosts(folder, pids)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for number in range(len(processes)):
            ip("netns", "delete", f"{BRIDGE}{number}")
        ip("link", "delete", BRIDGE)


def _sshd(folder: Path, space: str, address: str) -> subprocess.Popen[bytes]:
    config = folder / f"{space}.conf"
    config.write_text(
        f"ListenAddress {address}:22\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\n"
        "StrictModes no\nPasswordAuthentication no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPidFile none\n"
    )
    own = "for each in /tmp/ray /root/.ray /dev/shm; do mkdir -p $each; mount -t tmpfs own $each; done"
    script = f"hostname {space}; mkdir -p /run/sshd; {own}; exec /usr/sbin/sshd -D -f {config}"
    namespaces = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
    return subprocess.Popen(["ip", "netns", "exec", space, "unshare", *namespaces, "bash", "-c", script])


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: bool(children.read_text().split()))
    return int(children.read_text().split()[0])


def test_a_cluster_is_started_used_and_stopped(hosts: Hosts) -> None:
    words = ("cluster", "start", str(hosts.file), "--ssh-key", str(hosts.folder / "key"), *SIZES)
    started = hosts.whetstone(*words)
    assert started.returncode == 0, started.stdout + started.stderr
    address = f"{ADDRESSES[0]}:6379"
    assert started.stdout.splitlines()[-1].endswith(f"whetstone judge serve --ray {address}")
    assert (hosts.folder / "hosts.ray.token").stat().st_mode & 0o777 == 0o600
    nodes = f"import ray; ray.init('{address}'); print(sum(n['Alive'] for n in ray.nodes()))"
    wait_until(lambda: hosts.run(0, sys.executable, "-c", nodes).stdout.strip() == "2")
    without_token = hosts.run(0, "RAY_AUTH_MODE=disabled", sys.executable, "-c", nodes)
    assert without_token.returncode != 0
    stopped = hosts.whetstone("cluster", "stop", str(hosts.file))
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "raylet" not in hosts.run(0, "ps", "ax").stdout


def test_a_host_that_ssh_does_not_reach_is_an_error(hosts: Hosts) -> None:
    other = hosts.folder / "other.txt"
    other.write_text("nobody@10.213.0.1\n")
    failed = hosts.whetstone("cluster", "start", str(other), "--ssh-key", str(hosts.folder / "key"))
    assert failed.returncode == 2
    assert "10.213.0.1: `ssh" in failed.stderr
    assert "every host needs sshd" in failed.stderr
