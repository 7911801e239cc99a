"""This judge's server beside those of ScaleBox and SandboxFusion, under the same requests.

    .venv/bin/python benchmarks/service_rivals.py --scalebox DIR --sandbox-fusion DIR --rivals-python PYTHON

The checkouts and the interpreter are as in ``judge_speed.md``. So many programs are under way at a time, for
``--seconds``; what has no answer ``--patience`` seconds later counts as none, and its client hangs up. After
such a cell the server is started anew. CPU time is that of all processes: server, sandboxes and client.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from whetstone.service.connections import Broken, Connections
from whetstone_exam.load.footprint import process_tree, process_usage

CORES = len(os.sched_getaffinity(0))
UNDER_WAY = (1, 16, 256, 1000)
CASES = (1, 10)
COMPLETION = "```python\nprint(sum(map(int, input().split())))\n```"
START_S = 300.0
_SERVE = "-m uvicorn sandbox.server.server:app --host 127.0.0.1 --loop asyncio --log-level critical"


class Rival(Struct, frozen=True):
    """A server: its command but for the port, the folder that it runs in, and what it is asked."""

    name: str
    command: tuple[str, ...]
    folder: str
    path: str


def table_request(cases: int) -> dict[str, Any]:
    """ScaleBox's ``/common_evaluate_batch``: so many sums."""
    columns = {"input": [f"{n} {n}\n" for n in range(cases)], "output": [f"{2 * n}\n" for n in range(cases)]}
    data = {"test_cases": {"type": "stdin_stdout", "fn_name": None, **columns}}
    config = {"language": "python", "provided_data": data, "extra": {"run_all_cases": True}}
    return {"completion": COMPLETION, "config": {**config, "run_timeout": 20}}


def row_request(cases: int) -> dict[str, Any]:
    """SandboxFusion's ``/submit``: the same as a CommonOJ row."""
    tests = [{"input": {"stdin": f"{n} {n}\n"}, "output": {"stdout": f"{2 * n}\n"}} for n in range(cases)]
    row = {"id": 1, "content": "", "labels": {}, "test": tests}
    config = {
        "dataset_type": "CommonOJDataset",
        "language": "python",
        "provided_data": row,
        "run_timeout": 20,
    }
    return {"dataset": "sums", "id": 1, "completion": COMPLETION, "config": config}


REQUESTS = {"/common_evaluate_batch": table_request, "/submit": row_request}


@contextmanager
def started(rival: Rival) -> Generator[str]:
    """The rival's address while it runs. What it leaves behind is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*rival.command, "--port", str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=rival.folder, **silent)  # type: ignore
    try:
        url = f"http://127.0.0.1:{port}"
        asyncio.run(_answers(url, process))
        yield url
    finally:
        below = [pid for pid, _ in process_tree([process.pid]) if pid != process.pid]
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


async def _answers(url: str, process: subprocess.Popen[bytes]) -> None:
    until, connections = time.monotonic() + START_S, Connections(url, {})
    while time.monotonic() < until and process.poll() is None:
        try:
            if (await connections.ask("GET", "/v1/ping")).status == 200:
                await connections.close()
                return
        except Broken:
            await asyncio.sleep(0.2)
    raise SystemExit(f"{process.args} does not answer")


class Cell(Struct):
    """What became of the requests of a cell, and when each right answer came."""

    found: Counter[str]
    seconds: list[float]
    cpu_s: float


async def asked(url: str, rival: Rival, cases: int, under_way: int, seconds: float, patience: float) -> Cell:
    """Keep ``under_way`` requests on their way for so long."""
    body = json.dumps(REQUESTS[rival.path](cases)).encode()
    many = [Connections(url, {}) for _ in range(-(-under_way // 250))]
    cell = Cell(Counter(), [], 0.0)

    async def one(connections: Connections) -> None:
        began = time.perf_counter()
        try:
            answer = await connections.ask("POST", rival.path, body, "application/json")
        except Broken:
            cell.found["hung up"] += 1
            return
        if answer.status != 200:
            cell.found[str(answer.status)] += 1
        elif not json.loads(answer.content)["accepted"]:
            cell.found["wrong"] += 1
        else:
            cell.found["right"] += 1
            cell.seconds.append(time.perf_counter() - began)

    async def work(connections: Connections) -> None:
        while time.perf_counter() < end:
            await one(connections)

    for _ in range(2 * CORES):
        await one(many[0])
    cell = Cell(Counter(), [], 0.0)
    before, end = process_usage(process_tree([os.getpid()])).cpu_s, time.perf_counter() + seconds
    tasks = [asyncio.ensure_future(work(many[n % len(many)])) for n in range(under_way)]
    _, pending = await asyncio.wait(tasks, timeout=seconds + patience)
    cell.cpu_s = process_usage(process_tree([os.getpid()])).cpu_s - before
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=bool(pending))
    for connections in many:
        await connections.close()
    cell.found["no answer"] += len(pending)
    return cell


def row(rival: Rival, cases: int, under_way: int, cell: Cell) -> str:
    """A line of the table."""
    right, sent = cell.found["right"], cell.found.total()
    took = sorted(cell.seconds)
    times = "-"
    if took:
        p99 = took[min(int(0.99 * len(took)), len(took) - 1)]
        times = f"{1000 * statistics.median(took):.0f}, {1000 * p99:.0f}"
    failed = ", ".join(f"{n} {what}" for what, n in cell.found.items() if what != "right" and n) or "none"
    return (
        f"| {cases} | {under_way} | {rival.name} | {right / cell.cpu_s:.2f} | {times} | {sent} | {failed} |"
    )


def main() -> int:
    """Run all cells."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scalebox", metavar="DIR")
    parser.add_argument("--sandbox-fusion", metavar="DIR")
    parser.add_argument("--rivals-python", metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--only", metavar="NAME", help="Whetstone, ScaleBox or SandboxFusion")
    parser.add_argument("--cases", type=int, nargs="*", default=CASES)
    parser.add_argument("--under-way", type=int, nargs="*", default=UNDER_WAY)
    args = parser.parse_args()
    ours = (sys.executable, "-m", "whetstone", "judge", "serve")
    rivals = [Rival("Whetstone", ours, ".", "/common_evaluate_batch")]
    theirs = (str(Path(args.rivals_python or "").absolute()), *_SERVE.split())
    if args.rivals_python and args.scalebox:
        several = (*theirs, "--workers", str(CORES))
        rivals.append(Rival("ScaleBox", several, args.scalebox, "/common_evaluate_batch"))
    if args.rivals_python and args.sandbox_fusion:
        rivals.append(Rival("SandboxFusion", theirs, args.sandbox_fusion, "/submit"))
    print("| cases | under way | server | right answers / CPU s | p50, p99 ms | asked | failures |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    cells = [(cases, under_way) for cases in args.cases for under_way in args.under_way]
    for rival in (each for each in rivals if args.only in (None, each.name)):
        left = list(cells)
        while left:
            with started(rival) as url:
                fresh = True
                while left and fresh:
                    cases, under_way = left.pop(0)
                    cell = asyncio.run(asked(url, rival, cases, under_way, args.seconds, args.patience))
                    print(row(rival, cases, under_way, cell), flush=True)
                    fresh = not cell.found["no answer"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
