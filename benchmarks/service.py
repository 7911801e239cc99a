"""The judge over HTTP beside the local one: programs per CPU second, latency, and what overload does.

    .venv/bin/python benchmarks/service.py cost        1 to 1,000 programs under way, 1 and 10 cases
    .venv/bin/python benchmarks/service.py overload    requests at ten times what the server can judge
    .venv/bin/python benchmarks/service.py spread      a program of 50 cases with one worker and with two

Each prints a Markdown table. ``--count`` and ``--seconds`` make smaller runs. CPU time is that of all
processes: workers, sandboxes, server and client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from whetstone.core.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.judge import AsyncJudge, Program, Verdict
from whetstone.service.client import AsyncJudgeClient
from whetstone_exam.load.footprint import process_tree, process_usage

CORES = len(os.sched_getaffinity(0))
UNDER_WAY = (1, 16, 256, 1000)
CASES = (1, 10)
ADDS = Program("python", "print(sum(map(int, input().split())))\n")
BUSY = Program("python", "print(sum(map(int, input().split())) + 0 * sum(range(2_000_000)))\n")
DEADLINE_S = 5.0
TIMES = 10


def problem(cases: int) -> Problem:
    """So many sums."""
    tests = StdinTests([StdinCase(f"{n} {n}\n", f"{2 * n}\n") for n in range(cases)])
    return Problem(f"sums/{cases}", "", tests, limits=Limits(cpu_s=5.0, memory_mb=256))


@contextmanager
def server(workers: int = 0) -> Generator[str]:
    """A server with so many workers, 0: one for each core; its address."""
    command = [sys.executable, "-m", "whetstone", "judge", "serve", "--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        listening = json.loads(process.stderr.readline())
        draining = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield f"http://127.0.0.1:{listening['port']}"
    finally:
        process.terminate()
        process.wait()
        draining.wait()


async def judged(judge: AsyncJudge | AsyncJudgeClient, cases: int, under_way: int, count: int) -> list[float]:
    """Seconds from asking to the verdict, of ``count`` programs, so many at a time."""
    task, seconds = problem(cases), list[float]()
    turns = iter(range(count))

    async def work() -> None:
        for _ in turns:
            began = time.perf_counter()
            judgement = await judge.judge(task, ADDS)
            assert judgement.verdict is Verdict.ACCEPTED, judgement
            seconds.append(time.perf_counter() - began)

    await asyncio.gather(*(work() for _ in range(min(under_way, count))))
    assert len(seconds) == count
    return seconds


async def measured(
    judge: AsyncJudge | AsyncJudgeClient, cases: int, under_way: int, count: int
) -> list[float]:
    """Programs per CPU second and per second, p50 and p99 in ms."""
    await judged(judge, cases, under_way, min(under_way, 2 * CORES))
    cpu, began = process_usage(process_tree([os.getpid()])).cpu_s, time.perf_counter()
    seconds = sorted(await judged(judge, cases, under_way, count))
    took = time.perf_counter() - began
    used = process_usage(process_tree([os.getpid()])).cpu_s - cpu
    p99 = seconds[min(int(0.99 * count), count - 1)]
    return [count / used, count / took, 1000 * statistics.median(seconds), 1000 * p99]


async def cost(count: int, rounds: int) -> None:
    """Local and over HTTP in turns, so that what else runs on the machine meets both."""
    print("| cases | under way | local /CPU s | HTTP /CPU s | ratio | local p50, p99 ms | HTTP p50, p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with server() as url:
        async with AsyncJudge() as local, AsyncJudgeClient(url) as remote:
            for cases in CASES:
                for under_way in UNDER_WAY:
                    many = max(count // cases, under_way)
                    pairs = [
                        [await measured(judge, cases, under_way, many) for judge in (local, remote)]
                        for _ in range(rounds)
                    ]
                    ratio = statistics.median(there[0] / here[0] for here, there in pairs)
                    here, there = (
                        [statistics.median(each) for each in zip(*side, strict=True)]
                        for side in zip(*pairs, strict=True)
                    )
                    print(
                        f"| {cases} | {under_way} | {here[0]:.0f} | {there[0]:.0f} | {ratio:.2f} "
                        f"| {here[2]:.1f}, {here[3]:.1f} | {there[2]:.1f}, {there[3]:.1f} |",
                        flush=True,
                    )


async def spread(count: int) -> None:
    """Asked in turns, so that what else runs on the machine meets both."""
    with server(1) as one, server(2) as two:
        async with AsyncJudgeClient(one) as first, AsyncJudgeClient(two) as second:
            took: list[list[float]] = [[], []]
            for _ in range(count):
                for judge, seconds in zip((first, second), took, strict=True):
                    seconds += await judged(judge, 50, 1, 1)
    alone, both = (1000 * statistics.median(seconds) for seconds in took)
    print(f"a program of 50 cases, p50 of {count}: one worker {alone:.1f} ms, two {both:.1f} ms")


async def ask(port: int, body: bytes) -> tuple[int, float]:
    """Status and seconds of one request over a connection of its own."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/judge HTTP/1.1\r\nHost: b\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), time.perf_counter() - began


async def offered(port: int, body: bytes, per_second: float, seconds: float) -> Counter[str]:
    """What becomes of requests that come at this rate, whatever the server does."""
    found: Counter[str] = Counter()

    async def one() -> None:
        try:
            status, took = await ask(port, body)
        except (OSError, IndexError) as error:
            found[type(error).__name__] += 1
            return
        found[str(status)] += 1
        found["late"] += took > DEADLINE_S + 0.5

    began, sent = time.perf_counter(), 0
    async with asyncio.TaskGroup() as tasks:
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * per_second:
                tasks.create_task(one())
                sent += 1
            await asyncio.sleep(0.005)
    found["sent"] = sent
    return found


async def overload(seconds: float) -> None:
    """Goodput where requests come as fast as they are judged, and ten times as fast."""
    asked = {"program": BUSY, "problem": problem(1), "options": {"deadline_s": DEADLINE_S}}
    body = msgspec.json.encode(asked)
    with server() as url:
        port = int(url.rpartition(":")[2])
        turns = iter(range(200))

        async def in_turn() -> None:
            for _ in turns:
                await ask(port, body)

        began = time.perf_counter()
        await asyncio.gather(*(in_turn() for _ in range(4 * CORES)))
        capacity = 200 / (time.perf_counter() - began)
        print(f"{capacity:.1f} programs/s at the pace of the judge; then for {seconds:.0f} s each:\n")
        print("| offered /s | sent | judged /s | 503 | 504 | others | answered after their deadline |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for times in (1, TIMES):
            found = await offered(port, body, times * capacity, seconds)
            late, sent = found.pop("late", 0), found.pop("sent")
            good, busy, slow = found.pop("200", 0), found.pop("503", 0), found.pop("504", 0)
            others = dict(found) or 0
            assert good + busy + slow + sum(found.values()) == sent
            row = (f"{times * capacity:.0f}", sent, f"{good / seconds:.1f}", busy, slow, others, late)
            print(f"| {' | '.join(map(str, row))} |", flush=True)


def main() -> int:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("cost", "overload", "spread"))
    parser.add_argument("--count", type=int, default=1000, help="programs of one case for each figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300.0)
    args = parser.parse_args()
    parts = {
        "cost": lambda: cost(args.count, args.rounds),
        "overload": lambda: overload(args.seconds),
        "spread": lambda: spread(args.count),
    }
    asyncio.run(parts[args.part]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
