"""Judge servers on the nodes of a cluster. A driver of this test stands in for Ray, with real processes.

Ray itself (its placement, killed and joining nodes) is in ``tests/integrations/ray``.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.processes import wait_until
from whetstone.core.errors import UserError
from whetstone.core.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.core.ray_driver import ActorLost, RayNode
from whetstone.judge import Program, Verdict
from whetstone.judge.workers.wire import pack, unpack
from whetstone.service import ray_servers
from whetstone.service.ray_servers import NodeServerSetup, RayServers
from whetstone.service.settings import ServiceLimits

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PROBLEM = Problem(
    *("sums", "", StdinTests([StdinCase("1 2\n", "3\n"), StdinCase("7 " * 100_000, "700000\n")])),
    limits=Limits(cpu_s=5.0, memory_mb=256),
)
RIGHT = Program("python", "print(sum(map(int, input().split())))\n")
WRONG = Program("python", "print(4)\n")
ENDLESS = Program("python", "while True: pass")
Change = Callable[[str, NodeServerSetup], NodeServerSetup]


class Actor:
    def __init__(self, setup: bytes) -> None:
        command = [sys.executable, "-m", "tests.service.node_process"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        self.process.stdin.write(setup)
        self.process.stdin.close()

    async def call(self, method: str) -> Any:
        assert self.process.stdout is not None
        if method == "start" and (line := await asyncio.to_thread(self.process.stdout.readline)):
            return json.loads(line)
        await asyncio.to_thread(self.process.wait)
        raise ActorLost("it was killed")

    def end(self) -> None:
        self.process.kill()


class Cluster:
    """Stands in for Ray. Its nodes have one CPU each, and all of them are this machine."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.actors: dict[str, Actor] = {}
        self.change: Change = lambda name, setup: setup

    def __call__(self, address: str, joined_by: str) -> Cluster:
        return self

    def nodes(self) -> list[RayNode]:
        return [RayNode(name, "127.0.0.1", {"CPU": 1.0}) for name in self.names]

    def start(self, actor: type[Any], setup: bytes, *, node: str, cpus: float) -> Actor:
        changed = self.change(node, unpack(setup, NodeServerSetup))
        self.actors[node] = Actor(pack(changed))
        return self.actors[node]

    def close(self) -> None:
        for actor in self.actors.values():
            actor.end()
            actor.process.wait()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(ray_servers, "RayDriver", found)
    return found


def serving(minimum_tier: str = "restricted") -> RayServers:
    return RayServers("auto", 0, {"minimum_tier": minimum_tier}, ServiceLimits())


def states(servers: RayServers) -> dict[str, str]:
    return {node.name.partition("/")[2]: node.state for node in servers.states()}


def test_a_lost_node_costs_no_verdict_and_one_that_joins_gets_work(cluster: Cluster) -> None:
    cluster.names = ["one", "two"]
    with serving() as servers:
        wait_until(lambda: states(servers) == {"one": "ready", "two": "ready"})
        assert servers.workers == 2
        judge = servers.judge
        futures = [judge.submit(PROBLEM, RIGHT if number % 2 else WRONG) for number in range(60)]
        wait_until(lambda: sum(future.done() for future in futures) >= 10)
        cluster.names = ["one", "three"]
        cluster.actors["two"].end()
        verdicts = [future.result().verdict for future in futures]
        assert verdicts == [Verdict.WRONG_ANSWER, Verdict.ACCEPTED] * 30
        wait_until(lambda: states(servers) == {"one": "ready", "two": "lost", "three": "ready"})
        assert sum(node.losses for node in servers.states()) == 1
        for future in [judge.submit(PROBLEM, RIGHT) for _ in range(12)]:
            assert future.result().score == 1.0
        assert all(node.judged > 0 for node in servers.states() if node.state == "ready")


def test_a_server_that_is_lost_on_a_live_node_is_replaced(cluster: Cluster) -> None:
    cluster.names = ["one"]
    with serving() as servers:
        cluster.actors["one"].end()
        wait_until(lambda: states(servers) == {"one": "left_out"})
        assert servers.judge.judge(PROBLEM, RIGHT).verdict is Verdict.ACCEPTED
        (node,) = servers.states()
        assert (node.state, node.losses) == ("ready", 1)


def test_a_cancelled_program_frees_its_worker(cluster: Cluster) -> None:
    cluster.names = ["one"]
    with serving() as servers:
        stopped = servers.judge.submit(PROBLEM, ENDLESS)
        wait_until(lambda: sum(node.in_flight for node in servers.states()) == 1)
        assert stopped.cancel()
        assert servers.judge.judge(PROBLEM, RIGHT).verdict is Verdict.ACCEPTED
        late = servers.judge.submit(PROBLEM, ENDLESS, deadline_s=0.3, queued_s=60.0).result()
        assert (late.verdict, late.score) == (Verdict.JUDGE_ERROR, None)


def test_a_node_that_differs_is_left_out_and_named(cluster: Cluster) -> None:
    def change(name: str, setup: NodeServerSetup) -> NodeServerSetup:
        if name == "weak":
            return msgspec.structs.replace(setup, settings={"tier": "restricted"})
        return msgspec.structs.replace(setup, version="0.0.1") if name == "old" else setup

    cluster.change, cluster.names = change, ["weak"]
    with pytest.raises(UserError, match=r"weak: .*restricted"):
        serving("userns")
    cluster.names = ["good", "old"]
    with serving() as servers:
        wait_until(lambda: states(servers) == {"good": "ready", "old": "left_out"})
        (old,) = [node for node in servers.states() if node.state == "left_out"]
        assert "0.0.1" in old.reason


def test_without_a_cpu_there_is_no_judge(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_servers, "_FIRST_SERVER_S", 1.0)
    with pytest.raises(UserError, match="no node has a CPU to judge on"):
        serving()


def test_without_ray_the_server_says_how_to_get_it() -> None:
    words = "import sys; sys.modules['ray'] = None; from whetstone.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", words, "judge", "serve", "--ray", "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "pip install -c constraints.txt -e '.[ray]'" in ended.stderr
    assert "Traceback" not in ended.stderr
