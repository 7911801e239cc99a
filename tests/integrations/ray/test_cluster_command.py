"""``whetstone cluster`` over a real sshd on loopback, with keys, a port and a configuration of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.judge_service.service_process import service
from tests.processes import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(SSHD is None, reason="needs sshd (Debian: openssh-server)"),
]
_SIZES = ("--cpus", "1", "--object-store-mb", "100")


@dataclass
class Hosts:
    """127.0.0.1 and 127.0.0.2, which are this machine, reached by ssh."""

    folder: Path
    ssh_port: int
    port: int

    def file(self, *lines: str) -> str:
        path = self.folder / "hosts.txt"
        path.write_text("\n".join(lines))
        return str(path)

    def whetstone(self, action: str, hosts: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "whetstone", "cluster", action, hosts, "--port", str(self.port)]
        config = ["--ssh-config", str(self.folder / "ssh_config")]
        return subprocess.run(
            [*words, *config, *more], capture_output=True, text=True, timeout=1500, check=False
        )

    def refused(self, action: str, hosts: str, *more: str) -> str:
        done = self.whetstone(action, hosts, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        return done.stderr


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder, ssh_port = tmp_path_factory.mktemp("ssh"), free_port()
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{ssh_port}\nListenAddress 127.0.0.2:{ssh_port}\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPasswordAuthentication no\nUsePAM no\n"
        f"PermitRootLogin prohibit-password\nPidFile {folder}/sshd.pid\n"
    )
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        f"UserKnownHostsFile {folder}/known\nLogLevel ERROR\n"
    )
    server = subprocess.Popen([str(SSHD), "-D", "-f", str(folder / "sshd_config")])
    try:
        wait_until(lambda: _answers(ssh_port))
        yield Hosts(folder, ssh_port, free_port())
    finally:
        server.terminate()
        server.wait()


def stranger(address: str) -> subprocess.CompletedProcess[bytes]:
    """Somebody who reaches the head, and has no token: whether Ray lets them see the nodes."""
    words = [sys.executable, "-c", f"import ray; ray.init('{address}'); ray.nodes()"]
    return subprocess.run(
        words, env={**os.environ, "RAY_AUTH_MODE": "disabled"}, capture_output=True, check=False
    )


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def test_a_cluster_is_started_joined_used_and_stopped(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = f"127.0.0.1:{hosts.ssh_port}", f"127.0.0.2:{hosts.ssh_port}"
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        started = hosts.whetstone("start", hosts.file("# the head", one), *_SIZES)
        assert started.returncode == 0, started.stderr
        address = started.stdout.split()[-1]
        assert address.endswith(f":{hosts.port}")
        assert "runs already on 127.0.0.1" in hosts.refused("start", hosts.file(one), *_SIZES)
        monkeypatch.delenv("RAY_AUTH_MODE")
        assert stranger(address).returncode != 0
        with service(tmp_path, "--ray", address, workers=0) as server:
            both = hosts.file(one, two)
            joined = hosts.whetstone("join", both, *_SIZES)
            assert joined.returncode == 0, joined.stderr
            assert joined.stdout == "joined: 127.0.0.2\n"
            began = time.monotonic()
            wait_until(lambda: server.ask("GET", "/healthz")[1]["nodes"] == {"ready": 2})
            print(f"a node judges {time.monotonic() - began:.1f} s after it joined")
            assert "every host" in hosts.whetstone("join", both, *_SIZES).stdout
        stopped = hosts.whetstone("stop", both)
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.count("processes ended") == 2
        assert hosts.whetstone("stop", both).stdout.count("nothing of this cluster runs") == 2
        assert bystander.poll() is None
    finally:
        hosts.whetstone("stop", hosts.file(one, two))
        bystander.kill()
        bystander.wait()


def test_what_is_wrong_names_the_host_and_the_way_out(hosts: Hosts, tmp_path: Path) -> None:
    one = f"127.0.0.1:{hosts.ssh_port}"
    closed = hosts.refused("start", hosts.file(one, f"127.0.0.2:{free_port()}"))
    assert "127.0.0.2: ssh does not get there" in closed
    assert "this must work without a question: ssh -o BatchMode=yes" in closed
    stranger = hosts.refused("start", hosts.file(f"nobody@127.0.0.1:{hosts.ssh_port}"))
    assert "127.0.0.1: ssh does not get there (nobody@127.0.0.1: Permission denied" in stranger
    assert "give --python PATH" in hosts.refused("start", hosts.file(one), "--python", "/nowhere/python")
    bare = hosts.refused("start", hosts.file(one), "--python", "/usr/bin/python3")
    assert "127.0.0.1: Whetstone is not installed there" in bare
    assert "the head does not run" in hosts.refused("join", hosts.file(one))
    with socket.socket() as other:
        other.bind(("127.0.0.1", hosts.port))
        other.listen()
        assert f"127.0.0.1: port {hosts.port} is in use there" in hosts.refused("start", hosts.file(one))


def test_versions_that_differ_are_named(hosts: Hosts, tmp_path: Path) -> None:
    """Both are this machine, so a Python that says something else of itself stands in for the second one."""
    other = tmp_path / "python"
    other.write_text(
        f'#!/bin/sh\ncase "$SSH_CONNECTION" in *" 127.0.0.2 "*) exec {sys.executable} "$@" | '
        f'sed \'s/"ray":"[^"]*"/"ray":"\'$RAY_SAYS\'"/\';; *) exec {sys.executable} "$@";; esac\n'
    )
    other.chmod(0o755)
    both = hosts.file(f"127.0.0.1:{hosts.ssh_port}", f"127.0.0.2:{hosts.ssh_port}")
    missing = hosts.refused("start", both, "--python", str(other))
    assert "127.0.0.2: Ray is not installed there; on it run:" in missing
    other.write_text(other.read_text().replace("$RAY_SAYS", "2.1.0"))
    differs = hosts.refused("start", both, "--python", str(other))
    assert "127.0.0.2: it has ray 2.1.0, the head" in differs
    assert f"{other} -m pip install ray==" in differs
