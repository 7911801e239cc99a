"""``whetstone judge serve --ray`` over two Ray nodes on this machine: one is killed, another joins."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import descendants, wait_until
from tests.service.service_process import ServiceProcess, commanded, service
from whetstone.core.problem import Limits, StdinCase, StdinTests
from whetstone.judge import Problem, Program, Verdict
from whetstone.service.client import JudgeClient

Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

SMALL = {"num_cpus": 1, "object_store_memory": 100 << 20}
PROGRAMS = 2000
PROBLEM = Problem(
    *("sums", "", StdinTests([StdinCase(f"{n} {n}\n", f"{2 * n}\n") for n in (1, 2)])),
    limits=Limits(cpu_s=10.0, memory_mb=256),
)
SOURCES = {
    Verdict.ACCEPTED: "print(sum(map(int, input().split())))",
    Verdict.WRONG_ANSWER: "print(2)",
    Verdict.RUNTIME_ERROR: "raise ValueError",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    running = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    running.add_node(**SMALL)
    try:
        yield running
    finally:
        running.shutdown()


def states(server: ServiceProcess) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in server.ask("GET", "/v1/nodes")[1]}


def ready(server: ServiceProcess) -> int:
    return server.ask("GET", "/healthz")[1]["nodes"].get("ready", 0)


def test_every_program_has_one_verdict_though_a_node_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    with service(tmp_path, "--ray", cluster.address, workers=0) as server:
        wait_until(lambda: ready(server) == 2)
        wanted = [list(SOURCES)[number % len(SOURCES)] for number in range(PROGRAMS)]
        with JudgeClient(server.url) as judge:
            pairs = [
                (PROBLEM, Program("python", f"# {n}\n{SOURCES[each]}\n")) for n, each in enumerate(wanted)
            ]
            verdicts = list[Verdict]()
            for judgement in judge.judge_many(pairs):
                verdicts.append(judgement.verdict)
                if len(verdicts) == PROGRAMS // 3:
                    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
                if len(verdicts) == PROGRAMS // 2:
                    cluster.add_node(**SMALL)
            assert verdicts == wanted
            counted = server.ask("GET", "/metrics")[1].decode()
            judged = re.findall(r"^whetstone_judge_programs_total\S* (\S+)$", counted, re.MULTILINE)
            assert sum(map(float, judged)) == PROGRAMS
            assert server.metric("whetstone_judge_node_losses_total") == 1
            wait_until(lambda: ready(server) == 2)
            for judgement in judge.judge_many(pairs[:100]):
                assert judgement.verdict in wanted
            assert all(node["judged"] > 0 for node in states(server).values() if node["state"] == "ready")
            ran = server.ask("POST", "/run_code", {"language": "python", "code": "print(6 * 7)"})[1]
            assert ran["run_result"]["stdout"] == "42\n"
            stopped = judge.submit(PROBLEM, Program("python", "while True: pass"))
            wait_until(lambda: sum(node["in_flight"] for node in states(server).values()) == 1)
            stopped.cancel()
            wait_until(lambda: sum(node["in_flight"] for node in states(server).values()) == 0)
        assert server.end() == 0
        assert [line["event"] for line in server.lines()][-1] == "ended"


def test_a_server_that_is_killed_leaves_no_judge_behind(cluster: Cluster, tmp_path: Path) -> None:
    with service(tmp_path, "--ray", cluster.address, workers=0) as server:
        wait_until(lambda: ready(server) == 2)
        raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]

        def workers() -> list[int]:
            return [found for pid in raylets for found in commanded(descendants(pid), "whetstone")]

        assert len(workers()) >= 2
        server.end(signal.SIGKILL)
        wait_until(lambda: not workers())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:10001"])
def test_without_a_cluster_the_server_names_the_remedy(address: str) -> None:
    asked = [sys.executable, "-m", "whetstone", "judge", "serve", "--port", "0", "--ray", address]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert "whetstone cluster start" in ended.stderr or "a machine of the cluster" in ended.stderr
    assert "Traceback" not in ended.stderr
