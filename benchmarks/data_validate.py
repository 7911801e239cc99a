"""Validating problems: throughput beside plain ``subprocess``, and memory over a large generated set.

    .venv/bin/python benchmarks/data_validate.py speed --data FOLDER [--rounds 3] [--batches 10]
    .venv/bin/python benchmarks/data_validate.py memory [--problems 100000] [--tests 20] [--out DIR]

``speed``: HumanEval, sanitized MBPP and the shipped problems. Batches of the same problems are validated, and
their references run with their tests in a bare ``python -c``, in turn; every batch's figure is kept and the
median over all of them printed. CPU seconds are of the whole process tree, the judge's workers included.
``memory``: a set of generated problems, written and read as a stream, each with one reference; the resident
memory of the validating process at 10 %, 50 % and 100 % of the problems.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from speed.tree_cpu import CgroupCpu, WalkCpu, tree_cpu
from whetstone import __version__
from whetstone.core.problem import AssertTests, CallTests, Limits, Problem, Program, StdinCase, StdinTests
from whetstone.data.builtin import shipped_problems
from whetstone.data.files import write_problems
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.validator import ValidationOutcome
from whetstone.data.validate.whole_set import count_tests, validate_set
from whetstone.judge import Judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))
from shared_sets import humaneval, mbpp

BATCHES = 10
REFERENCES_ONLY = Policy(repeats=1, mutants=0, trivial_programs=False)


def main() -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    speed = parts.add_parser("speed")
    speed.add_argument("--data", type=Path, required=True)
    speed.add_argument("--rounds", type=int, default=3)
    speed.add_argument("--batches", type=int, default=BATCHES, help=f"of {BATCHES} (default: all)")
    memory = parts.add_parser("memory")
    memory.add_argument("--problems", type=int, default=100_000)
    memory.add_argument("--tests", type=int, default=20)
    memory.add_argument("--workers", type=int, default=0)
    memory.add_argument("--out", type=Path, help="also write what is kept, as a dataset")
    args = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    print(f"Whetstone {__version__}, {machine}, load average {os.getloadavg()[0]:.1f}")
    if args.part == "speed":
        compare_speed(args.data, args.rounds, args.batches)
    else:
        watch_memory(args.problems, args.tests, args.workers, args.out)


def compare_speed(data: Path, rounds: int, count: int) -> None:
    """Print problems per CPU second and per second, for each contestant."""
    problems = [*humaneval(data), *mbpp(data), *shipped_problems("builtin:all")]
    print(f"{len(problems)} problems, {count} of {BATCHES} batches of them, {rounds} rounds, one worker")
    batches = [problems[start::BATCHES] for start in range(count)]
    meter = tree_cpu(f"data-validate-{os.getpid()}")
    meter.add(os.getpid())
    print(f"CPU: {meter.source}")
    figures: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{n}.jsonl" for n in range(count)]
        for file, batch in zip(files, batches, strict=True):
            write_problems(file, batch)
        for turn in range(rounds):
            for number, (file, batch) in enumerate(zip(files, batches, strict=True)):
                contestants: list[tuple[str, Callable[[], None]]] = [
                    ("plain subprocess, references", lambda batch=batch: run_plainly(batch)),
                    ("validate, references once", lambda file=file: validate(file, REFERENCES_ONLY)),
                    (
                        "validate, all cases in a process",
                        lambda file=file: validate(file, REFERENCES_ONLY, False),
                    ),
                    ("validate as by default", lambda file=file: validate(file, Policy())),
                ]
                first = (turn + number) % len(contestants)
                for name, run in [*contestants[first:], *contestants[:first]]:
                    wall, cpu = timed(run, meter)
                    figures.setdefault(name, []).append((len(batch) / wall, len(batch) / cpu))
    for name, rates in figures.items():
        wall, cpu = (statistics.median(rate[i] for rate in rates) for i in (0, 1))
        low, high = (sorted(rate[1] for rate in rates)[i] for i in (0, -1))
        print(
            f"{name:34} {cpu:7.1f} problems per CPU second ({low:.1f} to {high:.1f}), {wall:6.1f} per second"
        )


def timed(run: Callable[[], None], meter: CgroupCpu | WalkCpu) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and of all that it started."""
    began, used = time.perf_counter(), meter.seconds()
    run()
    return time.perf_counter() - began, meter.seconds() - used


def validate(file: Path, policy: Policy, fork_per_case: bool = True) -> None:
    """Validate a file. Starting and ending the judge is part of it."""
    with Judge(workers=1, fork_per_case=fork_per_case) as judge:
        tally = validate_set(file, judge, policy, count_tests(file), workers=1)
    assert tally.problems == tally.kept + tally.dropped


def run_plainly(batch: list[Problem]) -> None:
    """Every reference with its tests, in a fresh interpreter each, one after another.

    Some are refused, for ``==`` distinguishes a tuple from a list; what counts here is the time.
    """
    for problem in batch:
        for reference in problem.references:
            for program, given in plain_programs(problem, reference.source):
                subprocess.run([sys.executable, "-c", program], input=given, text=True, capture_output=True)


def plain_programs(problem: Problem, source: str) -> Iterator[tuple[str, str]]:
    """What ``python -c`` runs: one program with all the asserts or calls, or one for each input."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        code = [tests.setup, *(tests.asserts or [tests.check or tests.unittest or ""])]
        if tests.check:
            code.append(f"check({tests.entry_point})")
        yield "\n".join([source, *code]), ""
    elif isinstance(tests, CallTests):
        owner = f"{tests.class_}()." if tests.class_ else ""
        if tests.function is None:
            return
        name = f"{owner}{tests.function}"
        calls = [f"assert {name}(*{c.args!r}, **{c.kwargs!r}) == {c.expected!r}" for c in tests.cases]
        yield "\n".join([source, *calls]), ""
    elif isinstance(tests, StdinTests):
        for case in tests.cases:
            yield source, case.input


def watch_memory(count: int, tests: int, workers: int, out: Path | None) -> None:
    """Print the resident memory as the set is validated, and the rate."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "generated.jsonl"
        write_problems(file, generated(count, tests))
        size = file.stat().st_size / (1 << 20)
        print(f"{count} problems with {tests} tests, {size:.0f} MB")
        shared = count_tests(file)
        print(f"tests counted: {resident_mb():.0f} MB resident")
        done, began = 0, time.perf_counter()

        def watch(problem: Problem, outcome: ValidationOutcome) -> None:
            nonlocal done
            done += 1
            if done in {count // 100, count // 10, count // 2, count}:
                rate = done / (time.perf_counter() - began)
                print(
                    f"{done:7} problems: {resident_mb():5.0f} MB resident, {rate:.1f} per second", flush=True
                )

        with closing(Judge(workers, fork_per_case=False)) as judge:
            tally = validate_set(file, judge, REFERENCES_ONLY, shared, workers=workers, watch=watch, out=out)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak {peak:.0f} MB; {tally.kept} kept, {tally.dropped} dropped, marks {dict(tally.marks)}")


def generated(count: int, tests: int) -> Iterator[Problem]:
    """Problems that differ in statement, tests and reference, made one at a time."""
    for number in range(count):
        cases = [StdinCase(f"{n} {number}\n", f"{n * number + n}\n") for n in range(1, tests + 1)]
        source = f"n, k = map(int, input().split())\nprint(n * k + n)  # {number}\n"
        statement = f"Problem {number}: read n and k and print n times (k + 1). " + "Lorem ipsum. " * 20
        yield Problem(
            f"generated/{number}",
            statement,
            StdinTests(cases),
            limits=Limits(cpu_s=2.0, memory_mb=256.0),
            references=[Program("python", source)],
            source="generated",
        )


def resident_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()
