"""What a newcomer waits for: time to the first figure, total time, CPU time and memory of the first commands.

    git clone <this repository> fresh && cd fresh
    python3 benchmarks/first_minutes.py --out first.json
    python3 benchmarks/first_minutes.py --out first-avx2.json --only tour quickstart --mask-avx2

Run it in a fresh clone on an idle machine. It needs nothing but the standard library. A part starts
when the cores were idle for five seconds. Results are kept in the JSON file after each part, and a part with
a result is not run again. ``--mask-avx2`` hides AVX-512 and bfloat16 instructions from torch, so that a newer
processor computes like one with AVX2. The table goes to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

MOST_BUSY, LOOK_S = 0.05, 5.0
MASK = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "avx_ne_convert")
PROBLEM = {
    "id": "first/add",
    "statement": "Read two integers and print their sum.",
    "tests": {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}]},
}
PROGRAM = "print(sum(map(int, input().split())))\n"


@dataclass
class Part:
    """A command, and the pattern of the first line that holds a figure."""

    name: str
    command: list[str]
    first: str = ""


@dataclass
class Measured:
    """What a command took. Times in seconds; ``peak_mb``: the largest resident process, in 10**6 bytes."""

    first_s: float | None
    total_s: float
    cpu_s: float
    peak_mb: float
    status: int
    last_lines: list[str] = field(default_factory=list[str])


def parts(folder: Path) -> Iterator[Part]:
    """All parts, in the order in which a newcomer meets them."""
    problem, program = folder / "problem.json", folder / "program.py"
    problem.write_text(json.dumps(PROBLEM))
    program.write_text(PROGRAM)
    yield Part("install", ["make", ".venv/.train"])
    yield Part("tour", ["make", "tour"], r"accepted")
    yield Part("model", ["make", "models/SmolLM2-135M-Instruct"])
    for seed in range(3):
        figure = r"accepted [.\d]+|pass@1"
        yield Part(f"quickstart seed {seed}", ["make", "quickstart", f"SEED={seed}"], figure)
    yield Part("doctor", [".venv/bin/whetstone", "doctor"])
    yield Part("judge one", [".venv/bin/whetstone", "judge", "one", str(problem), str(program)])
    yield Part("install of the tests", ["make", ".venv/.dev"])
    yield Part("test-fast", ["make", "test-fast"])
    yield Part("test", ["make", "test"])


def wait_until_idle() -> None:
    """Wait until the cores are busy for at most MOST_BUSY of LOOK_S seconds."""
    while (busy := _busy_share()) > MOST_BUSY:
        print(f"the cores are {busy:.0%} busy: waiting for at most {MOST_BUSY:.0%}", file=sys.stderr)


def _busy_share() -> float:
    before = _ticks()
    time.sleep(LOOK_S)
    spent = [now - then for now, then in zip(_ticks(), before, strict=True)]
    return 1 - (spent[3] + spent[4]) / max(sum(spent), 1)  # the fourth and fifth are idle time


def _ticks() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def measure(part: Part, environment: dict[str, str]) -> Measured:
    """Run a command to its end, and read its output as it appears."""
    began, first = time.monotonic(), None
    lines: list[str] = []
    process = subprocess.Popen(
        part.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{time.monotonic() - began:7.1f}  {line}", end="", file=sys.stderr)
        lines.append(line.rstrip())
        if first is None and part.first and re.search(part.first, line):
            first = time.monotonic() - began
    _, status, usage = os.wait4(process.pid, 0)
    return Measured(
        first_s=first,
        total_s=time.monotonic() - began,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mb=usage.ru_maxrss * 1024 / 1e6,
        status=os.waitstatus_to_exitcode(status),
        last_lines=lines[-25:],
    )


def processor() -> str:
    """The processor's name, its cores, and its instructions for bfloat16."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.+)", text)
    numbers = re.search(r"cpu family\s*:\s*(\d+)\nmodel\s*:\s*(\d+)", text)
    flags = set(text.split())
    known = [flag for flag in BF16_FLAGS if flag in flags]
    return (
        f"{os.cpu_count()} x {name[1] if name else platform.machine()}"
        f"{f' (family {numbers[1]}, model {numbers[2]})' if numbers else ''}, "
        f"bf16 instructions: {', '.join(known) or 'none'}"
    )


def table(results: dict[str, dict[str, object]]) -> Iterator[str]:
    """The rows of the report."""
    yield "| command | first figure | total | CPU | peak memory |"
    yield "| --- | --- | --- | --- | --- |"
    for name, result in results.items():
        row = Measured(**result)  # pyright: ignore[reportArgumentType]
        first = "" if row.first_s is None else f"{row.first_s:.0f} s"
        failed = f" (status {row.status})" if row.status else ""
        yield (
            f"| {name}{failed} | {first} | {row.total_s:.1f} s | {row.cpu_s:.1f} s | {row.peak_mb:.0f} MB |"
        )


def main() -> int:
    """Measure the chosen parts; status 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("first_minutes.json"))
    parser.add_argument("--only", nargs="*", help="parts whose names begin with one of these")
    parser.add_argument("--mask-avx2", action="store_true", help="hide AVX-512 and bf16 from torch")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    environment = {**os.environ, **(MASK if args.mask_avx2 else {}), "PYTHONUNBUFFERED": "1"}
    folder = args.out.resolve().parent
    for part in parts(folder):
        chosen = args.only is None or part.name.startswith(tuple(args.only))
        if chosen and part.name not in results:
            wait_until_idle()
            print(f"--- {part.name}: {' '.join(part.command)}", file=sys.stderr)
            results[part.name] = asdict(measure(part, environment))
            args.out.write_text(json.dumps(results, indent=1))
    print(processor() + (", masked to AVX2" if args.mask_avx2 else ""))
    print("\n".join(table(results)))
    return int(any(result["status"] for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
