"""``whetstone train --ray`` over two Ray nodes on this machine, one of which is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.roles_by_hand import CHEAPER, until, write_async_recipe
from tests.run.tiny_recipe import command, timeless, write_recipe

Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

SMALL = {"object_store_memory": 100 << 20}
FAR = "flow.resources.replica.cpus=2"
"""The head has one CPU, which is the trainer's."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    head = {**SMALL, "num_cpus": 1, "include_dashboard": False}
    running = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield running
    finally:
        running.shutdown()


def records(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_replica_of_a_lost_node_continues_on_another_one(cluster: Cluster, tmp_path: Path) -> None:
    alone = subprocess.run(
        command(write_recipe(tmp_path), tmp_path / "alone", *CHEAPER), capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr
    lost = cluster.add_node(num_cpus=2, **SMALL)
    words = [*command(write_async_recipe(tmp_path), tmp_path / "run", *CHEAPER), FAR]
    with (tmp_path / "said").open("w+") as said:
        train = subprocess.Popen([*words, "--ray", cluster.address], stdout=said, stderr=said)
        try:
            until(lambda: len(records(tmp_path / "run")) >= 2 or train.poll() is not None, "two records")
            cluster.remove_node(lost, allow_graceful=False)
            cluster.add_node(num_cpus=2, **SMALL)
            status = train.wait()
        finally:
            train.kill()
            train.wait()
        printed = (tmp_path / "said").read_text()
    assert status == 0, printed
    assert "rollout-0 ended by SIGKILL; restarting (1 of 5)" in printed
    assert timeless(tmp_path / "run" / "metrics.jsonl") == timeless(tmp_path / "alone" / "metrics.jsonl")


def test_missing_resources_are_refused_with_those_that_exist(cluster: Cluster, tmp_path: Path) -> None:
    words = [*command(write_async_recipe(tmp_path), tmp_path / "run"), "flow.resources.replica.gpus=1"]
    done = subprocess.run([*words, "--ray", cluster.address], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no place for a replica, which needs 1 CPU and 1 GPU (`flow.resources.replica`)" in done.stderr
    assert "has 1 CPU and 0 GPU" in done.stderr
    assert not (tmp_path / "run").exists()


def test_where_there_is_no_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    words = [*command(write_async_recipe(tmp_path), tmp_path / "run"), "--ray", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no Ray cluster at `127.0.0.1:1`" in done.stderr
    assert "whetstone cluster start" in done.stderr


def test_a_run_in_one_process_has_no_roles_to_place(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whetstone", "train", str(write_recipe(tmp_path)), "--ray"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "has no section `flow`" in done.stderr
