"""The judge under load: verdicts on an oversubscribed machine, cost over many cases, memory over many runs.

    .venv/bin/python benchmarks/judge_load.py verdicts    10,000 verdicts at 1x and at 8x: the same
    .venv/bin/python benchmarks/judge_load.py cost        CPU of a case: 1 to 50 cases, 1 to 10,000 programs
    .venv/bin/python benchmarks/judge_load.py growth      memory over 100,000 runs, and what they leave

Each prints a Markdown table. ``--count`` makes a smaller run. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from whetstone.core.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.judge import Judge, Judgement, Program, Verdict
from whetstone_exam.load.footprint import Process, ProcessUsage, process_tree, process_usage
from whetstone_exam.load.load import Load
from whetstone_exam.load.mix import CPU_S, KnownProgram, known_programs, mix

CORES = len(os.sched_getaffinity(0))
MIB = 1 << 20
CASE_COUNTS = (1, 2, 5, 10, 20, 50)
CASES_EACH_ROUND = 200
ROUNDS = 5
LARGEST_SUBARRAY = """
numbers = list(map(int, input().split()))
best = here = numbers[0]
for number in numbers[1:]:
    here = max(number, here + number)
    best = max(best, here)
print(best)
"""


def said(judgement: Judgement) -> tuple[Any, ...]:
    """What must not depend on load."""
    return judgement.verdict, judgement.score, [(case.index, case.verdict) for case in judgement.cases]


def reported(every: int) -> Callable[[int], None]:
    """Says now and then how many programs are judged."""
    began = time.monotonic()

    def report(done: int) -> None:
        if done % every == 0:
            print(f"  {done} judged, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    return report


def with_shares(shares: dict[str, int]) -> list[KnownProgram]:
    """Sorts of programs of the stress mix, with other shares."""
    return [
        msgspec.structs.replace(known, share=shares[known.name])
        for known in known_programs()
        if known.name in shares
    ]


def verdicts(count: int) -> bool:
    """Whether programs get at 8x oversubscription the verdicts that they get at 1x, and the known ones."""
    fast = {known.name: known.share for known in known_programs() if known.verdicts != (Verdict.TIME_LIMIT,)}
    for costly in ("sleeping", "memory", "output", "errors", "threads", "processes"):
        del fast[costly]
    shares = {**fast, "half the limit": 50, "endless": 12, "endless call": 4}
    programs = list(mix(count, seed=8, programs=with_shares(shares)))
    judged: dict[int, list[Judgement]] = {}
    print("| workers on each core | seconds | load average | not as known | largest CPU of an endless case |")
    print("| --- | --- | --- | --- | --- |")
    for times in (1, 8):
        began = time.monotonic()
        with Load(times * CORES, on_progress=reported(1000)) as load:
            found: dict[int, Judgement] = {}
            load.judge(programs, found.__setitem__)
        judged[times] = [found[number] for number in range(count)]
        seconds = time.monotonic() - began
        ends = [case.cpu_s for j in judged[times] for case in j.cases if case.verdict is Verdict.TIME_LIMIT]
        print(
            f"| {times} | {seconds:.0f} | {os.getloadavg()[0]:.1f} | {len(load.differences)} | "
            f"{max(ends, default=0.0):.3f} s of {CPU_S} s |",
            flush=True,
        )
    differences = [
        (known.name, said(one)[0].value, said(eight)[0].value, eight.reason)
        for known, one, eight in zip(programs, judged[1], judged[8], strict=True)
        if said(one) != said(eight)
    ]
    counts = dict(Counter(judgement.verdict.value for judgement in judged[1]).most_common())
    sorts = dict(Counter(known.name for known in programs).most_common())
    print(
        f"\n{count} programs: {sorts}\n\nverdicts: {counts}\n\ndifferences: {len(differences)} {differences}"
    )
    return not differences and not load.differences


def subarray_problem(cases: int) -> Problem:
    """Largest sum of neighbours among 1,000 numbers, ``cases`` times."""
    listed: list[StdinCase] = []
    for case in range(cases):
        numbers = [(number * 7919 + case * 104729) % 2001 - 1000 for number in range(1000)]
        best = here = numbers[0]
        for number in numbers[1:]:
            here = max(number, here + number)
            best = max(best, here)
        listed.append(StdinCase(" ".join(map(str, numbers)), str(best)))
    return Problem("load/subarray", "", StdinTests(listed), limits=Limits(cpu_s=5.0, memory_mb=256))


def tree_cpu(judge: Judge) -> Callable[[], float]:
    """A clock of the CPU seconds that a judge's processes have used, and this process has."""
    return lambda: process_usage(process_tree(judge.worker_pids())).cpu_s + time.process_time()


def cost(count: int) -> bool:
    """CPU for each case, by the number of cases of a program and by the number of programs before it."""
    program = Program("python", LARGEST_SUBARRAY)
    with Judge(workers=1) as judge:
        clock = tree_cpu(judge)

        def milliseconds(problem: Problem, cases: int, programs: int) -> float:
            began = clock()
            assert all(j.accepted for j in judge.judge_many([(problem, program)] * programs))
            return (clock() - began) * 1e3 / (cases * programs)

        problems = {cases: subarray_problem(cases) for cases in CASE_COUNTS}
        milliseconds(problems[10], 10, 20)  # warm
        rounds = [
            {cases: milliseconds(problems[cases], cases, CASES_EACH_ROUND // cases) for cases in CASE_COUNTS}
            for _ in range(ROUNDS)
        ]
        print("| cases of a program | CPU for each case, whole tree, ms (median of rounds; range) |")
        print("| --- | --- |")
        for cases in CASE_COUNTS:
            figures = [figure[cases] for figure in rounds]
            print(f"| {cases} | {statistics.median(figures):.2f} ({min(figures):.2f}-{max(figures):.2f}) |")
        print("\n| programs judged before | CPU for each case, whole tree, ms |\n| --- | --- |", flush=True)
        done, step = 0, max(count // 10, 1)
        while done < count:
            figure = milliseconds(problems[1], 1, step)
            print(f"| {done} to {done + step} | {figure:.2f} |", flush=True)
            done += step
    return True


def descriptors(processes: Sequence[Process]) -> int:
    """How many descriptors the processes have open, as far as we may look."""
    total = 0
    for pid, _ in processes:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def growth(count: int) -> bool:
    """Memory and descriptors of the judge over ``count`` runs of cases, and what is left at the end."""
    names = {"half the limit", "sleeping", "endless", "endless call", "threads", "processes", "memory"}
    shares = {known.name: known.share for known in known_programs() if known.name not in names}
    sorts = with_shares(shares)
    print("| runs | seconds | workers, MiB | fork-servers, MiB | caller, MiB | processes | descriptors |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    block, began = 0, time.monotonic()
    with Load(CORES) as load:
        while True:
            workers, servers = load.processes()
            own = process_usage(
                process for process in process_tree([os.getpid()]) if process[0] == os.getpid()
            )
            seconds, open_files = time.monotonic() - began, descriptors(workers + servers)
            print(
                row(load.cases, seconds, process_usage(workers), process_usage(servers), own, open_files),
                flush=True,
            )
            if load.cases >= count:
                break
            block += 1
            target = min(load.cases + max(count // 10, 1), count)
            while load.cases < target:
                load.judge(mix(500, seed=1000 * block + load.cases, programs=sorts))
    left = load.leftovers()
    print(f"\nverdicts not as known: {len(load.differences)}\n\nleft over: {left or 'nothing'}")
    return not left and not load.differences


def row(
    runs: int, seconds: float, workers: ProcessUsage, rest: ProcessUsage, own: ProcessUsage, open_files: int
) -> str:
    """A line of the table of ``growth``."""
    sizes = " | ".join(f"{used.resident_bytes / MIB:.1f}" for used in (workers, rest, own))
    return f"| {runs} | {seconds:.0f} | {sizes} | {workers.processes + rest.processes} | {open_files} |"


def main() -> int:
    """Run one of the three; status 1 when it did not hold."""
    runs = {"verdicts": (verdicts, 10_000), "cost": (cost, 10_000), "growth": (growth, 100_000)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=runs)
    parser.add_argument("--count", type=int, help="how many programs (growth: runs) instead of all")
    arguments = parser.parse_args()
    run, usual = runs[arguments.what]
    return 0 if run(arguments.count or usual) else 1


if __name__ == "__main__":
    sys.exit(main())
