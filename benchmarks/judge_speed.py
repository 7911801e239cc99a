"""Our judge beside others: CPU and wall time of the same programs and cases, interleaved, on one core.

    python benchmarks/judge_speed.py --data FOLDER --verl FOLDER --scalebox FOLDER --sandbox-fusion FOLDER \\
        --rivals-python PYTHON --verl-python PYTHON --nsjail FILE

Rivals are never part of this repository: they are given by path, and one that is not given is reported as not
run. ``benchmarks/judge_speed.md`` says how to prepare them, what each figure means, and what came out.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from speed.race import Race
from speed.roster import ROSTER
from speed.small_programs import PROGRAMS
from speed.tables import by_program, merged, table, targets
from speed.work import public_tasks, small_tasks
from whetstone.judge import Judge
from whetstone.sandbox import zygote

# How many cases a program has: how many tasks make a batch. It is long enough that the switch to it from
# another contestant does not show.
COPIES = {1: 8, 10: 1, 50: 1}
BLOCKS = 3


def main() -> None:
    """Run everything and print Markdown."""
    options = _options()
    names = options.only.split(",") if options.only else list(ROSTER)
    paths = _paths(options)
    workloads = {
        f"{count} {name}": tasks
        for count in COPIES
        for name, tasks in small_tasks(count, COPIES[count]).items()
    }
    if options.data:
        blocks = public_tasks(Path(options.data), BLOCKS)
        workloads.update({f"public {n}": block[: options.public] for n, block in enumerate(blocks)})
    start = time.monotonic()
    race = Race(names, paths, workloads, options.core)
    try:
        meter = next(iter(race.running.values())).meter
        _rounds(race, workloads, options.rounds)
        results = race.results
        seen = race.finish()
    finally:
        race.abandon()
    print(_machine(paths, options.core, meter))
    _print_tables(results, workloads)
    print("\n".join(f"- {ROSTER[name].label}: {why}" for name, why in race.out.items()))
    blind = {name: round(share, 3) for name, share in seen.items() if share < 0.97}
    print(
        f"\nWall time of the whole run: {time.monotonic() - start:.0f} s. Meter blind for: {blind or 'none'}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="folder with humaneval/ and mbpp_sanitized/")
    parser.add_argument(
        "--public", type=int, default=200, help=f"at most so many tasks in each of {BLOCKS} blocks"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--tier", default="restricted", help="the lowest isolation tier that ours may use")
    parser.add_argument("--only", help=f"names, separated by commas, of {', '.join(ROSTER)}")
    parser.add_argument("--python", default="/usr/bin/python3", help="what bwrap and the like run")
    parser.add_argument("--bwrap", default=shutil.which("bwrap"))
    parser.add_argument("--firejail", default=shutil.which("firejail"))
    parser.add_argument("--nsjail", default=shutil.which("nsjail"))
    parser.add_argument("--verl", help="folder that holds the package `verl`")
    parser.add_argument("--sandbox-fusion", help="checkout of SandboxFusion")
    parser.add_argument("--scalebox", help="checkout of ScaleBox")
    parser.add_argument("--rivals-python", help="interpreter with what SandboxFusion and ScaleBox import")
    parser.add_argument("--verl-python", help="interpreter in which `import verl` works")
    return parser.parse_args()


def _paths(options: argparse.Namespace) -> dict[str, str]:
    given = {name: value for name, value in vars(options).items() if isinstance(value, str)}
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    return {**given, "own": sys.executable, "base": base, "zygote": str(Path(zygote.__file__).parent)}


def _rounds(race: Race, workloads: dict[str, list[dict[str, Any]]], rounds: int) -> None:
    for name in PROGRAMS:
        race.round(f"1 {name}", 0, keep=False)  # caches and lazy imports
    for turn in range(rounds):
        for count in COPIES:
            # Long batches need fewer repetitions.
            if count < 50 or turn % 2 == 0:
                for place, name in enumerate(PROGRAMS):
                    race.round(f"{count} {name}", turn + place)
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
    for turn, name in enumerate(name for name in workloads if name.startswith("public")):
        race.round(name, turn)
        print(name, file=sys.stderr)


def _print_tables(results: dict[str, Any], workloads: dict[str, list[dict[str, Any]]]) -> None:
    together = {count: merged(results, [f"{count} {name}" for name in PROGRAMS]) for count in COPIES}
    for count, copies in COPIES.items():
        print(f"\n## Small programs, {count} case{'s' if count > 1 else ''} each\n")
        tasks = copies * len(PROGRAMS)
        print(table(together[count], tasks, tasks * count))
    print("\n## Each small program, 10 cases\n")
    print(by_program({name: merged(results, [f"10 {name}"]) for name in PROGRAMS}, 10 * COPIES[10]))
    blocks = [name for name in workloads if name.startswith("public")]
    if blocks:
        size = min(len(workloads[name]) for name in blocks)
        print(f"\n## HumanEval and sanitized MBPP, references, {len(blocks)} blocks of {size}\n")
        each = {name: [b for block in blocks for b in batches[block]] for name, batches in results.items()}
        print(table(each, size, size))
    print("\n## Targets\n")
    print(targets(together[1], together[10]) + "\n")


def _machine(paths: dict[str, str], core: int, meter: str) -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine()
    )
    with Judge(workers=1, minimum_tier=paths["tier"]) as judge:
        tier = judge.isolation
    versions = [
        f"Python {platform.python_version()} (ours)",
        f"{_first_line([paths['python'], '-V'])} (commands)",
    ]
    versions += [_first_line([paths[name], "--version"]) for name in ("bwrap", "firejail") if name in paths]
    return (
        f"Machine: {os.cpu_count()} x {model}, Linux {platform.release()}; all on core {core}; "
        f"CPU by {meter}. "
        f"Isolation of ours: {tier}. {'; '.join(versions)}. Load at the end: {os.getloadavg()[0]:.1f}."
    )


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).splitlines()[0]


if __name__ == "__main__":
    main()
