"""The judge over Ray nodes that are emulated on this machine: what routing costs, scaling, a loss, a join.

    .venv/bin/python benchmarks/cluster.py overhead    the same programs by the local judge and over one node
    .venv/bin/python benchmarks/cluster.py router      nodes that answer at once: what the router can do
    .venv/bin/python benchmarks/cluster.py scale       programs that sleep, on 1, 2 and 4 nodes
    .venv/bin/python benchmarks/cluster.py lose        a node killed in the middle of 2,000 programs
    .venv/bin/python benchmarks/cluster.py join        how soon a node that joins has judged

Each prints a Markdown table. ``--count`` makes smaller runs. CPU time is that of all processes, Ray's too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (as `whetstone cluster` has it)

from ray.cluster_utils import Cluster

from whetstone import __version__
from whetstone.judge import Judge, Judgement, Program, Verdict
from whetstone.judge.workers.wire import pack, unpack
from whetstone.judge_service.cluster.judge import ClusterJudge
from whetstone.judge_service.cluster.messages import Fit, Given, Judged, JudgeJob
from whetstone.judge_service.cluster.node import NodeJudge
from whetstone.judge_service.cluster.ray_fleet import RayFleet
from whetstone.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.stress.footprint import family, usage
from whetstone.verdict import CaseJudgement

ADDS = Program("python", "print(sum(map(int, input().split())))\n")
SLEEP_S = 0.5
SLEEPS = Program("python", f"import time; time.sleep({SLEEP_S}); print(sum(map(int, input().split())))\n")
SOURCES = ("print(sum(map(int, input().split())))", "print(2)", "raise ValueError", "print(1 / 0)")


def sums(cases: int) -> Problem:
    tests = StdinTests([StdinCase(f"{n} {n}\n", f"{2 * n}\n") for n in range(1, cases + 1)])
    return Problem(f"sums/{cases}", "", tests, limits=Limits(cpu_s=10.0, memory_mb=256))


class AtOnce(NodeJudge):
    """A node that judges nothing, so that what remains is the way there and back."""

    async def hello(self) -> bytes:
        return pack(Fit(__version__, "root", "none", ["python"], []))

    def _begin(self, given: Given) -> None:
        job = unpack(given.job, JudgeJob)
        problem = self._known.named(job.problem_sha256)
        cases = [CaseJudgement(Verdict.ACCEPTED, 0.001, 0.001, 1 << 20, "", n) for n in range(10)]
        assert len(problem.tests.cases) == len(cases)
        self._answer(
            given.number, Judged(Judgement(Verdict.ACCEPTED, cases, 1.0, "root", environment="none"))
        )


@contextmanager
def nodes(*cores: int, node: type[NodeJudge] = NodeJudge) -> Iterator[tuple[Cluster, ClusterJudge]]:
    """A cluster of so many nodes, and the judge over it once all of them judge."""
    small = {"object_store_memory": 100 << 20}
    head = {**small, "num_cpus": cores[0], "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for each in cores[1:]:
            cluster.add_node(num_cpus=each, **small)
        with ClusterJudge(RayFleet(cluster.address, node)) as judge:
            wait_until(lambda: ready(judge) == len(cores))
            yield cluster, judge
    finally:
        cluster.shutdown()


def ready(judge: ClusterJudge) -> int:
    return sum(node.state == "ready" for node in judge.nodes())


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.02)


def judged(judge: Judge | ClusterJudge, problem: Problem, under_way: int, count: int) -> list[float]:
    """Seconds from asking to the verdict of ``count`` programs, so many at a time."""
    flying = deque[Future[Judgement]]()
    seconds = list[float]()

    def asked() -> Future[Judgement]:
        began = time.perf_counter()
        future = judge.submit(problem, ADDS)
        future.add_done_callback(lambda _: seconds.append(time.perf_counter() - began))
        return future

    for _ in range(count):
        if len(flying) >= under_way:
            assert flying.popleft().result().verdict is Verdict.ACCEPTED
        flying.append(asked())
    for future in flying:
        assert future.result().verdict is Verdict.ACCEPTED
    return sorted(seconds)


def measured(judge: Judge | ClusterJudge, problem: Problem, under_way: int, count: int) -> list[float]:
    """Of each program: CPU ms of all processes, CPU ms of this one, wall ms; then p50 and p99 in ms."""
    judged(judge, problem, under_way, 20)
    everybody, own, began = usage(family([os.getpid()])).cpu_s, time.process_time(), time.perf_counter()
    seconds = judged(judge, problem, under_way, count)
    took, own = time.perf_counter() - began, time.process_time() - own
    everybody = usage(family([os.getpid()])).cpu_s - everybody
    p50, p99 = statistics.median(seconds), seconds[min(int(0.99 * count), count - 1)]
    return [1000 * everybody / count, 1000 * own / count, 1000 * took / count, 1000 * p50, 1000 * p99]


def overhead(count: int) -> None:
    """In turns, so that what else runs on the machine meets both."""
    print("| cases | under way | judge | CPU ms | of it the router's process | wall ms | p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with Judge(1) as local, nodes(1) as (_, cluster):
        for cases in (1, 10):
            for under_way in (1, 4, 64):
                for name, judge in (("local", local), ("one Ray node", cluster)):
                    found = measured(judge, sums(cases), under_way, count // cases)
                    cells = " | ".join(f"{value:.2f}" for value in found)
                    print(f"| {cases} | {under_way} | {name} | {cells} |", flush=True)


def router(count: int) -> None:
    """Ray is told of 64 cores for each node, though none of them judges anything."""
    print("| nodes of 64 workers | under way | the router's CPU ms | wall ms | programs/s |")
    print("| --- | --- | --- | --- | --- |")
    for number in (1, 2):
        with nodes(*[64] * number, node=AtOnce) as (_, judge):
            for under_way in (1, 64, 256 * number):
                _, own, wall, _, _ = measured(
                    judge, sums(10), under_way, count if under_way > 1 else count // 10
                )
                print(f"| {number} | {under_way} | {own:.2f} | {wall:.2f} | {1000 / wall:.0f} |", flush=True)


def scale(count: int) -> None:
    """Programs that sleep use no core, so nodes that share this machine do not take it from each other."""
    print(f"| nodes of 4 workers | programs of {SLEEP_S} s | seconds | programs/s | of the ideal |")
    print("| --- | --- | --- | --- | --- |")
    for number in (1, 2, 4):
        with nodes(*[4] * number) as (_, judge):
            wanted = count * number
            list(judge.judge_many([(sums(1), SLEEPS)] * 4 * number))
            began = time.perf_counter()
            found = Counter(each.verdict for each in judge.judge_many([(sums(1), SLEEPS)] * wanted))
            took = time.perf_counter() - began
            assert found == {Verdict.ACCEPTED: wanted}, found
            ideal = wanted / (4 * number) * SLEEP_S
            print(
                f"| {number} | {wanted} | {took:.1f} | {wanted / took:.1f} | {ideal / took:.0%} |", flush=True
            )


def lose(count: int) -> None:
    """The same programs by the local judge; by two nodes; by two nodes, one of which is killed halfway."""
    pairs = [(sums(2), Program("python", f"# {n}\n{SOURCES[n % 4]}\n")) for n in range(count)]
    with Judge(2) as local:
        expected = [each.verdict for each in local.judge_many(pairs)]
    with nodes(1, 1) as (cluster, judge):
        verdicts, answers = dict[int, Verdict](), Counter[int]()
        killed_at = 0.0
        began = time.perf_counter()
        for number, judgement in enumerate(judge.judge_many(pairs)):
            verdicts[number] = judgement.verdict
            answers[number] += 1
            if number == count // 2:
                killed_at = time.perf_counter() - began
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        took = time.perf_counter() - began
        counts = judge.counts()
    same = sum(verdicts[number] is wanted for number, wanted in enumerate(expected))
    print("| programs | killed after s | all after s | verdicts | as on one judge | begun anew | given up |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {count} | {killed_at:.1f} | {took:.1f} | {answers.total()} | {same} | {counts['rerun']} "
        f"| {counts['given_up']} |"
    )


def join(count: int) -> None:
    """While programs wait, from the moment at which Ray has the node."""
    print("| run | s until it judges | s until it has answered |")
    print("| --- | --- | --- |")
    with nodes(1) as (cluster, judge):
        for run in range(min(count, 3)):
            futures = [judge.submit(sums(1), SLEEPS) for _ in range(200)]
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            began = time.perf_counter()
            wait_until(lambda there=2 + run: ready(judge) == there)
            judges = time.perf_counter() - began
            wait_until(lambda: all(node.judged > 0 for node in judge.nodes()))
            print(f"| {run + 1} | {judges:.1f} | {time.perf_counter() - began:.1f} |", flush=True)
            for future in futures:
                future.cancel()


def main() -> None:
    """Run one of them."""
    runs = {
        "overhead": (overhead, 1000),
        "router": (router, 5000),
        "scale": (scale, 80),
        "lose": (lose, 2000),
        "join": (join, 3),
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=runs)
    parser.add_argument("--count", type=int, help="programs, or runs of a join")
    args = parser.parse_args()
    run, usual = runs[args.what]
    run(args.count or usual)


if __name__ == "__main__":
    main()
