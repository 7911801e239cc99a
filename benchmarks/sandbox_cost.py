"""CPU of the whole process tree per run of a small program: bare forks, the sandbox, and the whole judge.

    python benchmarks/sandbox_cost.py [--rounds 9] [--runs 60] [--tiers root,userns,restricted]

Prints µs per run (per case for the judge): medians over rounds in which everything is measured in turn,
because a machine is rarely idle. The floor is a fork of a warm interpreter that does nothing, or compiles
and runs the program, without any isolation: nothing that forks per case can be cheaper. Copying memory is
what costs, so all figures grow with the load of the machine; compare ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import whetstone.sandbox
from speed.tree_cpu import tree_cpu
from whetstone.core.errors import SandboxUnavailable
from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.sandbox import RunLimits, Sandbox, SandboxJob, Tier

A = "print(sum(range(1000)))\n"
B = """import sys
def solve(numbers):
    best = current = numbers[0]
    for number in numbers[1:]:
        current = max(number, current + number)
        best = max(best, current)
    return best
def main():
    numbers = list(map(int, sys.stdin.read().split()))
    print(solve(numbers))
main()
"""
C = """import heapq
import sys
from collections import defaultdict
def read_graph(numbers):
    graph = defaultdict(list)
    size = len(numbers) // 4
    for at in range(0, len(numbers) - 2, 3):
        start, end, cost = numbers[at : at + 3]
        start, end, cost = start % size, end % size, abs(cost) % 97 + 1
        graph[start].append((end, cost))
        graph[end].append((start, cost))
    for node in range(size - 1):
        graph[node].append((node + 1, 100))
    return graph
def distances(graph, source):
    best = {source: 0}
    heap = [(0, source)]
    while heap:
        distance, node = heapq.heappop(heap)
        if distance > best.get(node, float("inf")):
            continue
        for neighbour, cost in graph[node]:
            candidate = distance + cost
            if candidate < best.get(neighbour, float("inf")):
                best[neighbour] = candidate
                heapq.heappush(heap, (candidate, neighbour))
    return best
def main():
    numbers = [int(word) for word in sys.stdin.read().split()]
    found = distances(read_graph(numbers), 0)
    print(len(found), max(found.values()), sum(found.values()))
if __name__ == "__main__":
    main()
"""
PROGRAMS = {"A": A, "B": B, "C": C}
INPUT = " ".join(str(i * 7919 % 2003 - 1000) for i in range(1000)) + "\n"
LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
CASES = (1, 10, 50)
_ZYGOTE = Path(whetstone.sandbox.__file__).parent / "zygote"
_FLOOR = """
import json, sys
sys.path.insert(0, sys.argv[1])
from speed.floor import EmptyFork, ProgramFork
floors = [kind({"zygote": sys.argv[2]}) for kind in (EmptyFork, ProgramFork)]
for line in sys.stdin:
    which, source, given, count = json.loads(line)
    floors[which].judge([{"source": source, "cases": [[given, ""]] * count}])
    print("done", flush=True)
"""


class Floor:
    """A warm interpreter that forks without isolation."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _FLOOR, str(Path(__file__).parent), str(_ZYGOTE)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, which: int, source: str, count: int) -> None:
        """So many forks that leave at once (0) or run ``source`` (1)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([which, source, INPUT, count]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def contestants(
    stack: contextlib.ExitStack, tiers: list[Tier], name: str, source: str, runs: int
) -> dict[str, Callable[[], int]]:
    """What is measured, by name; each does some runs and returns how many."""
    floor = Floor()
    stack.callback(floor.close)
    found: dict[str, Callable[[], int]] = {
        "fork": lambda: floor.run(0, "", runs) or runs,
        "fork+exec": lambda: floor.run(1, source, runs) or runs,
    }
    for tier in tiers:
        try:
            sandbox = stack.enter_context(Sandbox({}, tier=tier))
        except SandboxUnavailable:
            continue
        job = SandboxJob("script", source.encode(), LIMITS, stdin=INPUT.encode())
        expected = sandbox.run(job).stdout.decode()
        found[f"sandbox {tier.label}"] = lambda box=sandbox, job=job: len([box.run(job) for _ in range(runs)])
        judge = stack.enter_context(Judge(workers=1, tier=tier.label))
        for count in CASES:
            tests = StdinTests([StdinCase(INPUT, expected)] * count)
            problem = Problem(f"cost/{name}", "", tests)
            found[f"judge {tier.label} {count}"] = lambda judge=judge, problem=problem, count=count: (
                judged(judge, problem, source, max(1, runs // count)) * count
            )
    return found


def judged(judge: Judge, problem: Problem, source: str, times: int) -> int:
    """Judge the same program so many times; it must be accepted."""
    for _ in range(times):
        assert judge.judge(problem, Program("python", source)).verdict is Verdict.ACCEPTED
    return times


def main() -> None:
    """Print a line for each program and contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--tiers", default="root,userns,restricted")
    options = parser.parse_args()
    meter = tree_cpu(f"whetstone-cost-{os.getpid()}")
    meter.add(os.getpid())
    print(f"CPU by {meter.source}; load {os.getloadavg()}; µs per run, median, and times fork+exec")
    tiers = [Tier[tier.upper()] for tier in options.tiers.split(",")]
    for name, source in PROGRAMS.items():
        with contextlib.ExitStack() as stack:
            found = contestants(stack, tiers, name, source, options.runs)
            costs: dict[str, list[float]] = {label: [] for label in found}
            for turn in range(options.rounds + 1):
                for label, run in found.items():
                    before = meter.seconds()
                    count = run()
                    if turn:  # the first warms up
                        costs[label].append((meter.seconds() - before) / count * 1e6)
            base = statistics.median(costs["fork+exec"])
            for label, values in costs.items():
                cost = statistics.median(values)
                print(
                    f"{name}  {label:24s} {cost:7.0f}  min {min(values):7.0f}  {cost / base:5.2f}x",
                    flush=True,
                )


if __name__ == "__main__":
    main()
