"""What a workspace costs, for each tier and way: time to the first command, fork, diff; disk when idle.

    python benchmarks/workspaces.py [--files 2000] [--copied-files 300] [--rounds 15] [--idle 1000]

Prints a table of medians in milliseconds of wall time, so the machine must be idle. The base has files of
5 KB in folders of 20: ``--files`` for overlays, ``--copied-files`` for copies. A changed workspace has 50 new
and 50 changed files. Idle workspaces have one changed file each; their disk is what all layers take together,
without the base. It does not depend on the tier, so it is measured at the first one of each way, after the
times. Processes are those that were started since before the first workspace was opened, beyond the
fork-server of the pool. After the table, removing a thousand copies may take minutes: ext4 with the option
``discard`` waits for the disk at each file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import RunLimits, Tier, Workspace, WorkspaceBase, Workspaces
from whetstone.sandbox.workspace import tree

LIMITS = RunLimits(cpu_s=20.0, memory_bytes=1 << 30, output_bytes=1 << 20)
FILE = b"".join(b"value_%d = %d\n" % (number, number) for number in range(250))
CHANGE = ["sh", "-c", "for i in $(seq 50); do echo new > new$i; echo changed > 0/$((i % 20)).$i; done"]


def make_base(root: Path, files: int) -> WorkspaceBase:
    """Store a base of so many files."""
    source = root / "source"
    for number in range(files):
        path = source / str(number // 20) / f"{number % 20}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FILE)
    base = WorkspaceBase.from_folder(root, source)
    shutil.rmtree(source)
    return base


def milliseconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    work()
    return 1000.0 * (time.perf_counter() - began)


def children() -> int:
    """Return the number of this process's children."""
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def command(workspace: Workspace, argv: list[str]) -> None:
    """Run a command that must succeed."""
    result = workspace.run(argv, limits=LIMITS)
    assert result.exit_code == 0, result


def measure(workspaces: Workspaces, base: WorkspaceBase, rounds: int) -> dict[str, float]:
    """Return the median of each step."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, value in measure_one(workspaces, base).items():
            times.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in times.items()}


def measure_one(workspaces: Workspaces, base: WorkspaceBase) -> dict[str, float]:
    """Return the time of each step in the life of one workspace."""
    found: dict[str, float] = {}
    began = time.perf_counter()
    workspace = workspaces.open(base)
    found["open"] = 1000.0 * (time.perf_counter() - began)
    command(workspace, ["true"])
    found["open and first command"] = 1000.0 * (time.perf_counter() - began)
    found["another command"] = milliseconds(lambda: command(workspace, ["true"]))
    command(workspace, CHANGE)
    forks: list[Workspace] = []
    found["fork"] = milliseconds(lambda: forks.append(workspace.fork()))
    found["diff of 100 files"] = milliseconds(workspace.diff)
    found["write"] = milliseconds(lambda: workspace.write("1/new.py", FILE))
    found["close"] = milliseconds(workspace.close)
    forks[0].close()
    return found


def idle(workspaces: Workspaces, base: WorkspaceBase, count: int) -> dict[str, float]:
    """Return what so many idle workspaces take."""
    before = children()
    for _ in range(count):
        workspaces.open(base).write("0/0.py", b"changed")
    with tree.folder(str(workspaces.own.path)) as folder:
        used = tree.measure(folder, tree.UNLIMITED)
    return {
        f"{count} idle: MiB of disk": (used.disk_bytes - used.entries * tree.ENTRY_BYTES) / (1 << 20),
        f"{count} idle: processes": float(children() - before),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("/var/tmp/workspaces-benchmark"))
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--copied-files", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--idle", type=int, default=1000)
    options = parser.parse_args()
    columns: dict[str, dict[str, float]] = {}
    first: dict[str, str] = {}
    options.root.mkdir(mode=0o711, parents=True)
    try:
        bases = {
            "overlay": make_base(options.root, options.files),
            "copy": make_base(options.root, options.copied_files),
        }
        for tier in sorted(Tier, reverse=True):
            for way, base in bases.items():
                try:
                    with Workspaces(options.root, tier=tier, way=way) as workspaces:
                        columns[f"{tier.label}, {way}"] = measure(workspaces, base, options.rounds)
                except SandboxUnavailable as refused:
                    print(f"{tier.label}, {way}: {refused}")
                    continue
                first.setdefault(way, tier.label)
        with ExitStack() as opened:
            for way, label in first.items():
                workspaces = Workspaces(options.root, tier=Tier[label.upper()], way=way)
                opened.enter_context(workspaces)
                columns[f"{label}, {way}"] |= idle(workspaces, bases[way], options.idle)
            print_table(columns, options.rounds)
    finally:
        shutil.rmtree(options.root)


def print_table(columns: dict[str, dict[str, float]], rounds: int) -> None:
    """Print the table as Markdown."""
    print(f"\n| ms, median of {rounds} | {' | '.join(columns)} |")
    print("| --- |" + " ---: |" * len(columns))
    for row in dict.fromkeys(row for column in columns.values() for row in column):
        cells = (f"{column[row]:.1f}" if row in column else "" for column in columns.values())
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
