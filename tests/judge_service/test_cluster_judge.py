"""Real judges as the nodes of a cluster that is no Ray cluster: they stand beside each other in this process.

What Ray itself does (nodes that are killed, that join) is in ``tests/integrations/ray``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.processes import wait_until
from whetstone.errors import UserError
from whetstone.judge import Program, Verdict
from whetstone.judge.workers.wire import pack, unpack
from whetstone.judge_service.cluster.fleet import Machine, NodeLost, Post
from whetstone.judge_service.cluster.judge import ClusterJudge
from whetstone.judge_service.cluster.messages import Batch, Fit, NodeSetup, Unfit
from whetstone.judge_service.cluster.node import NodeJudge
from whetstone.judge_service.runner.tasks import RunTask
from whetstone.problem import Limits, Problem, StdinCase, StdinTests

pytestmark = pytest.mark.process

LARGE = "7 " * 100_000
PROBLEM = Problem(
    *("sums", "", StdinTests([StdinCase("1 2\n", "3\n"), StdinCase(LARGE, "700000\n")])),
    limits=Limits(cpu_s=5.0, memory_mb=256),
)
RIGHT = Program("python", "print(sum(map(int, input().split())))\n")
WRONG = Program("python", "print(4)\n")
DEADLY = Program("python", "# deadly\nprint(3)\n")
Tampers = Callable[[str, Any], Any]


class Here:
    """A fleet whose machines are names. ``kill`` ends a machine's judge; ``tampers`` sees what it says."""

    def __init__(self, *names: str, tampers: Tampers = lambda _, said: said) -> None:
        self.there = [Machine(name, name, 1) for name in names]
        self.posts: dict[str, _Post] = {}
        self.tampers = tampers
        self.sent_bytes = 0

    def machines(self) -> list[Machine]:
        return list(self.there)

    def start(self, machine: Machine, workers: int, setup: bytes) -> Post:
        setup = pack(self.tampers(machine.name, unpack(setup, NodeSetup)))
        self.posts[machine.id] = post = _Post(self, machine, NodeJudge(setup))
        return post

    def kill(self, name: str) -> None:
        self.posts[name].dead.set()

    def close(self) -> None:
        assert all(post.ended for post in self.posts.values())


class _Post:
    def __init__(self, fleet: Here, machine: Machine, node: NodeJudge) -> None:
        self.fleet, self.machine, self.node = fleet, machine, node
        self.dead = threading.Event()
        self.ended = False

    async def call(self, method: str, data: bytes | None, silence_s: float) -> Any:
        if data is not None:
            self.fleet.sent_bytes += len(data)
            if any(b"# deadly" in given.job for given in unpack(data, Batch).jobs):
                self.dead.set()
        given = () if data is None else (data,)
        answer = asyncio.ensure_future(getattr(self.node, method)(*given))
        try:
            while not answer.done() and not self.dead.is_set():
                await asyncio.wait((answer,), timeout=0.02)
            if self.dead.is_set():
                raise NodeLost("it was killed")
            said = await answer
        finally:
            answer.cancel()
        if method != "hello":
            return said
        return pack(self.fleet.tampers(self.machine.name, unpack(said, Fit, Unfit)))

    def end(self) -> None:
        asyncio.run(self.node.close())
        self.ended = True


def ready(judge: ClusterJudge) -> list[str]:
    return sorted(node.name for node in judge.nodes() if node.state == "ready")


@pytest.mark.timeout(300)
def test_a_lost_node_costs_no_verdict_and_one_that_joins_takes_work() -> None:
    fleet = Here("one", "two")
    with ClusterJudge(fleet) as judge:
        wait_until(lambda: ready(judge) == ["one", "two"])
        futures = [judge.submit(PROBLEM, RIGHT if number % 2 else WRONG) for number in range(60)]
        wait_until(lambda: sum(future.done() for future in futures) >= 10)
        fleet.there.append(Machine("three", "three", 1))
        fleet.kill("two")
        verdicts = [future.result().verdict for future in futures]
        assert verdicts == [Verdict.WRONG_ANSWER, Verdict.ACCEPTED] * 30
        counts = judge.counts()
        assert (counts["losses"], counts["given_up"]) == (1, 0)
        assert counts["rerun"] > 0
        wait_until(lambda: ready(judge) == ["one", "three", "two"])
        for future in [judge.submit(PROBLEM, RIGHT) for _ in range(12)]:
            assert future.result().score == 1.0
        assert all(node.judged > 0 for node in judge.nodes())
        # The problem went once to each of four judges; the programs are small.
        assert fleet.sent_bytes < 4 * len(LARGE) + 100_000
        ran = judge.run(RunTask("python", "print(6 * 7)", b"", 5.0, 256 << 20, 1 << 20)).result().run
        assert ran is not None
        assert ran.stdout == b"42\n"


@pytest.mark.timeout(300)
def test_who_kills_every_node_is_a_judge_error_without_a_score() -> None:
    with ClusterJudge(Here("one", "two")) as judge:
        wait_until(lambda: len(ready(judge)) == 2)
        deadly = judge.submit(PROBLEM, DEADLY)
        others = [judge.submit(PROBLEM, RIGHT) for _ in range(8)]
        judgement = deadly.result()
        assert (judgement.verdict, judgement.score) == (Verdict.JUDGE_ERROR, None)
        assert "it was killed" in judgement.reason
        assert all(other.result().verdict is Verdict.ACCEPTED for other in others)


@pytest.mark.timeout(300)
def test_a_node_that_differs_is_left_out_and_named() -> None:
    def tampers(name: str, said: Any) -> Any:
        if name == "weak" and isinstance(said, NodeSetup):
            return msgspec.structs.replace(said, settings={**said.settings, "tier": "restricted"})
        if name == "old" and isinstance(said, Fit):
            return msgspec.structs.replace(said, version="0.0.1")
        return said

    with pytest.raises(UserError, match=r"weak: .*restricted"):
        ClusterJudge(Here("weak", tampers=tampers), minimum_tier="userns")
    with ClusterJudge(Here("good", "old", tampers=tampers)) as judge:
        wait_until(lambda: {node.state for node in judge.nodes()} == {"ready", "left_out"})
        (left_out,) = [node for node in judge.nodes() if node.state == "left_out"]
        assert left_out.name == "old"
        assert "0.0.1" in left_out.reason
        with pytest.raises(UserError, match="in `cobol`; the judge runs python"):
            judge.submit(PROBLEM, Program("cobol", "x"))
        endless = Program("python", "while True: pass")
        late = judge.submit(PROBLEM, endless, deadline_s=0.3, queued_s=60.0).result()
        assert (late.verdict, late.score) == (Verdict.JUDGE_ERROR, None)
        assert "deadline" in late.reason
        spins = [judge.submit(PROBLEM, endless, deadline_s=2.0).result() for _ in range(5)]
        assert Verdict.TIME_LIMIT in {each.verdict for each in spins}
        stopped = judge.submit(PROBLEM, Program("python", "while True: pass"))
        wait_until(lambda: sum(node.under_way for node in judge.nodes()) == 1)
        assert stopped.cancel()
        assert judge.judge(PROBLEM, RIGHT).verdict is Verdict.ACCEPTED  # there is one worker, and it is free


def test_without_ray_the_server_says_how_to_get_it() -> None:
    words = "import sys; sys.modules['ray'] = None; from whetstone.cli.main import main; sys.exit(main())"
    asked = [sys.executable, "-c", words, "judge", "serve", "--ray", "--port", "0"]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "pip install 'whetstone-rl[ray]'" in ended.stderr
    assert "Traceback" not in ended.stderr
