"""The host file of ``whetstone cluster``, Ray's cluster file, and bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.run.ray_cluster import ClusterPlan, cluster_config, read_hosts


def file(folder: Path, text: str) -> str:
    path = folder / "hosts"
    path.write_text(text)
    return str(path)


def test_a_host_file_is_read_as_mpi_and_ssh_write_it(tmp_path: Path) -> None:
    text = "# training\nroot@node-1 slots=8\n\nroot@10.0.0.2   # the second\nroot@fe80::1\n"
    assert read_hosts(file(tmp_path, text)) == (["node-1", "10.0.0.2", "fe80::1"], "root")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n-oProxyCommand=touch\n", ":2: '-oProxyCommand=touch' is not a host"),
        ("a\nb;rm\n", ":2: 'b;rm' is not a host"),
        ("a\nroot@a\n", ":2: a occurs twice"),
        ("one@a\ntwo@b\n", "several users (one, two)"),
        ("# nobody\n", "no host in it"),
    ],
)
def test_bad_host_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        read_hosts(file(tmp_path, text))
    assert message in str(refused.value)


def test_the_cluster_file_starts_one_node_on_each_host(tmp_path: Path) -> None:
    plan = ClusterPlan(["head", "far"], "me", 7000, "/opt/python", "/key", cpus=2, object_store_mb=100)
    config = cluster_config(plan, tmp_path / "token")
    assert config["provider"] == {"type": "local", "head_ip": "head", "worker_ips": ["far"]}
    assert config["auth"] == {"ssh_user": "me", "ssh_private_key": "/key"}
    assert (config["min_workers"], config["max_workers"]) == (1, 1)
    for role in ("head", "worker"):
        stop, start = config[f"{role}_start_ray_commands"]
        assert stop == "/opt/python -m ray.scripts.scripts stop"
        assert "RAY_AUTH_MODE=token" in start
        assert "--num-cpus=2 --object-store-memory=104857600" in start
    assert "--head --port=7000" in config["head_start_ray_commands"][1]
    assert "--address=$RAY_HEAD_IP:7000" in config["worker_start_ray_commands"][1]


def test_a_missing_cluster_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "stop", str(tmp_path / "none")]) == 2
    assert "`whetstone cluster start` writes it" in capsys.readouterr().err
