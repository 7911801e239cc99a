"""``whetstone doctor --stress N``: test the judge under load on this machine; print a table or JSON."""

from __future__ import annotations

import json
import os

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.core.errors import UserError
from whetstone.core.progress import Progress
from whetstone_exam.load.load import LoadFindings, stress
from whetstone_exam.load.mix import mix

_WORKERS_PER_CORE = 4
_SHOWN = 20


def run_stress(count: int, *, as_json: bool) -> int:
    """Judge ``count`` programs. Returns 0 if every verdict was correct and nothing is left over,
    otherwise 1."""
    if count < 1:
        raise UserError(f"--stress is {count}; give the number of programs to judge, such as 1000")
    workers = _WORKERS_PER_CORE * len(os.sched_getaffinity(0))
    with Progress() as progress, progress.work("judging", count) as judging:
        findings = stress(list(mix(count)), workers, on_progress=judging.update)
    if as_json:
        print(json.dumps({**msgspec.to_builtins(findings), "ok": findings.ok}, indent=2))
    else:
        _show(findings, Console())
    return 0 if findings.ok else 1


def _show(found: LoadFindings, console: Console) -> None:
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for name, text in _rows(found):
        table.add_row(name, Text(text))
    console.print(table)
    for difference in found.differences[:_SHOWN]:
        expected = " or ".join(difference.expected)
        text = f"{difference.name}: {difference.got} instead of {expected}: {difference.reason}"
        console.print(Text(text, style="red"))
    for kind, names in found.left.items():
        console.print(Text(f"left over, {kind}: {', '.join(names[:_SHOWN])}", style="red"))
    if found.grew:
        console.print(Text("the judge's memory grew", style="red"))
    verdict = "every verdict was correct, and nothing is left over" if found.ok else "the judge failed"
    console.print(Text(verdict, style="bold green" if found.ok else "bold red"))


def _rows(found: LoadFindings) -> list[tuple[str, str]]:
    counted = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in found.verdicts.items())
    mib = 1 << 20
    return [
        ("isolation", found.isolation),
        ("judged", f"{found.programs} programs, {found.cases} cases, on {found.workers} workers at once"),
        ("verdicts", counted),
        ("differences", str(len(found.differences))),
        (
            "speed",
            f"{found.programs / found.seconds:.1f} programs/s, {found.cases / found.seconds:.1f} cases/s",
        ),
        ("latency", f"{found.latency_p50_s:.3f} s median, {found.latency_p99_s:.3f} s for 99 of 100"),
        (
            "CPU per case",
            f"{found.program_cpu_s / found.cases * 1e3:.2f} ms in programs, "
            f"{found.tree_cpu_s / found.cases * 1e3:.2f} ms in all",
        ),
        (
            "memory",
            f"{found.resident_bytes_half / mib:.0f} MiB after half, {found.resident_bytes_end / mib:.0f} MiB "
            f"at the end, in {found.processes} processes",
        ),
        ("left over", ", ".join(f"{len(names)} {kind}" for kind, names in found.left.items()) or "nothing"),
    ]
