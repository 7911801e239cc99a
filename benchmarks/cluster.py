"""The judge over Ray nodes that are emulated on this machine: overhead, scaling, a loss, a join.

    .venv/bin/python benchmarks/cluster.py overhead    the same programs on the local judge and on one node
    .venv/bin/python benchmarks/cluster.py scale       programs that sleep, on 1, 2 and 4 nodes
    .venv/bin/python benchmarks/cluster.py lose        a node killed in the middle of 2,000 programs
    .venv/bin/python benchmarks/cluster.py join        how soon a joining node has judged a program

Each prints a Markdown table. ``--count`` makes smaller runs. CPU time is that of all processes, Ray's too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (as `whetstone cluster` sets it)

from ray.cluster_utils import Cluster

from whetstone import Judge, JudgeClient, Problem, Program, Verdict
from whetstone.core.problem import Limits, StdinCase, StdinTests
from whetstone.core.verdict import Judgement
from whetstone.service.ray_servers import RayServers
from whetstone.service.settings import ServiceLimits
from whetstone_exam.load.footprint import process_tree, process_usage

ADDS = Program("python", "print(sum(map(int, input().split())))\n")
SLEEP_S = 0.5
SLEEPS = Program("python", f"import time; time.sleep({SLEEP_S}); print(sum(map(int, input().split())))\n")
SOURCES = ("print(sum(map(int, input().split())))", "print(2)", "raise ValueError", "print(1 / 0)")


def sums(cases: int) -> Problem:
    tests = StdinTests([StdinCase(f"{n} {n}\n", f"{2 * n}\n") for n in range(1, cases + 1)])
    return Problem(f"sums/{cases}", "", tests, limits=Limits(cpu_s=10.0, memory_mb=256))


@contextmanager
def nodes(*cores: int) -> Generator[tuple[Cluster, RayServers]]:
    """Yield a cluster of nodes with these cores, and its servers once all of them are ready."""
    small = {"object_store_memory": 100 << 20}
    head = {**small, "num_cpus": cores[0], "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for each in cores[1:]:
            cluster.add_node(num_cpus=each, **small)
        with RayServers(cluster.address, 0, {}, ServiceLimits()) as servers:
            wait_until(lambda: ready(servers) == len(cores))
            yield cluster, servers
    finally:
        cluster.shutdown()


def ready(servers: RayServers) -> int:
    return sum(node.state == "ready" for node in servers.states())


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.02)


def judged(judge: Judge | JudgeClient, problem: Problem, in_flight: int, count: int) -> list[float]:
    """Return the sorted latencies in seconds of ``count`` programs, ``in_flight`` at a time."""
    flying = deque[Future[Judgement]]()
    seconds = list[float]()

    def asked() -> Future[Judgement]:
        began = time.perf_counter()
        future = judge.submit(problem, ADDS)
        future.add_done_callback(lambda _: seconds.append(time.perf_counter() - began))
        return future

    for _ in range(count):
        if len(flying) >= in_flight:
            assert flying.popleft().result().verdict is Verdict.ACCEPTED
        flying.append(asked())
    for future in flying:
        assert future.result().verdict is Verdict.ACCEPTED
    return sorted(seconds)


def measured(judge: Judge | JudgeClient, problem: Problem, in_flight: int, count: int) -> list[float]:
    """Return CPU ms of all processes, CPU ms of this one and wall ms per program; p50 and p99 in ms."""
    judged(judge, problem, in_flight, 20)
    everybody, own, began = (
        process_usage(process_tree([os.getpid()])).cpu_s,
        time.process_time(),
        time.perf_counter(),
    )
    seconds = judged(judge, problem, in_flight, count)
    took, own = time.perf_counter() - began, time.process_time() - own
    everybody = process_usage(process_tree([os.getpid()])).cpu_s - everybody
    p50, p99 = statistics.median(seconds), seconds[min(int(0.99 * count), count - 1)]
    return [1000 * everybody / count, 1000 * own / count, 1000 * took / count, 1000 * p50, 1000 * p99]


def overhead(count: int) -> None:
    """Alternate, so that other load on the machine affects both."""
    print("| cases | in flight | judge | CPU ms | of it the client's process | wall ms | p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with Judge(1) as local, nodes(1) as (_, servers):
        for cases in (1, 10):
            for in_flight in (1, 4, 64):
                for name, judge in (("local", local), ("one Ray node", servers.judge)):
                    found = measured(judge, sums(cases), in_flight, count // cases)
                    cells = " | ".join(f"{value:.2f}" for value in found)
                    print(f"| {cases} | {in_flight} | {name} | {cells} |", flush=True)


def scale(count: int) -> None:
    """Programs that sleep use no core, so nodes that share this machine do not take it from each other."""
    print(f"| nodes of 4 workers | programs of {SLEEP_S} s | seconds | programs/s | of the ideal |")
    print("| --- | --- | --- | --- | --- |")
    for number in (1, 2, 4):
        with nodes(*[4] * number) as (_, servers):
            judge = servers.judge
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
    with nodes(1, 1) as (cluster, servers):
        verdicts, answers = dict[int, Verdict](), Counter[int]()
        killed_at = 0.0
        began = time.perf_counter()
        for number, judgement in enumerate(servers.judge.judge_many(pairs)):
            verdicts[number] = judgement.verdict
            answers[number] += 1
            if number == count // 2:
                killed_at = time.perf_counter() - began
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        took = time.perf_counter() - began
    same = sum(verdicts[number] is wanted for number, wanted in enumerate(expected))
    print("| programs | killed after s | all after s | verdicts | as on one judge |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {count} | {killed_at:.1f} | {took:.1f} | {answers.total()} | {same} |")


def join(count: int) -> None:
    """While programs wait, from the moment at which Ray has the node."""
    print("| run | s until it judges | s until it has answered |")
    print("| --- | --- | --- |")
    with nodes(1) as (cluster, servers):
        ended = threading.Event()

        def load() -> None:
            # As the service does, this keeps a window of programs at the nodes. The others wait here.
            for _ in servers.judge.judge_many((sums(1), SLEEPS) for _ in iter(ended.is_set, True)):
                pass

        threading.Thread(target=load, daemon=True).start()
        for run in range(min(count, 3)):
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            began = time.perf_counter()
            wait_until(lambda there=2 + run: ready(servers) == there)
            judges = time.perf_counter() - began
            wait_until(lambda: all(node.judged > 0 for node in servers.states()))
            print(f"| {run + 1} | {judges:.1f} | {time.perf_counter() - began:.1f} |", flush=True)
        ended.set()


def main() -> None:
    """Run one of them."""
    runs = {
        "overhead": (overhead, 1000),
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
